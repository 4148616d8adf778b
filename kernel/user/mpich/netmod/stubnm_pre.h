/* What MPICH keeps for this netmod in its own structures. */
#ifndef STUBNM_PRE_H_INCLUDED
#define STUBNM_PRE_H_INCLUDED

/* Where the data of a message comes from that is longer than its packet. */
typedef struct {
    int rank;
    uint32_t data_tag;
    uint64_t data_bytes;
} MPIDI_STUBNM_am_request_t;

typedef struct {
    int unused;
} MPIDI_STUBNM_request_t;

typedef struct {
    int has_agreed;             /* upon the number of the next exchange, see hearth_exchange.c */
} MPIDI_STUBNM_comm_t;

typedef struct {
    int unused;
} MPIDI_STUBNM_dt_t;

typedef struct {
    int unused;
} MPIDI_STUBNM_op_t;

typedef struct {
    int unused;
} MPIDI_STUBNM_win_t;

typedef struct {
    int unused;
} MPIDI_STUBNM_addr_t;

typedef struct {
    int unused;
} MPIDI_STUBNM_part_t;

#endif
