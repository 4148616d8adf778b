/* ranks-probes: looks for messages before they are received, keeps them, lets them go; sends that
 * wait for their receive; a receive of any rank's that outlives ranks that end; as many operations as
 * the node takes. Rank 0 prints "ranks-probes: ok". */
#include <hearth.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 100000, MOST = 65536 };

static int rank, size;
static unsigned char sent[LONGEST], room[LONGEST];

static void must(int error, const char *what)
{
    if (error < 0) {
        printf("ranks-probes: rank %d: %s: %s\n", rank, what, hearth_strerror(error));
        exit(1);
    }
}

static void holds(int is, const char *what)
{
    if (!is) {
        printf("ranks-probes: rank %d: %s\n", rank, what);
        exit(1);
    }
}

/* Every other rank sends rank 0 messages of these lengths, with these tags. */
static const size_t lengths[] = {0, 100, LONGEST};
enum { KINDS = sizeof lengths / sizeof *lengths };

static void looked_at(void)
{
    struct hearth_status status;
    int found = 1;
    must(hearth_iprobe(HEARTH_ANY_RANK, 77, &found, NULL), "a probe of nothing");
    holds(!found, "a message that nobody has sent");
    must(hearth_barrier(), "barrier");
    for (int from = 1; from < size; from++)
        for (uint32_t tag = 0; tag < KINDS; tag++) {
            hearth_message message, other;
            must(hearth_probe(from, tag, &status), "a probe");
            holds((int)status.rank == from && status.tag == tag && status.bytes == lengths[tag], "what it found");
            must(hearth_mprobe(HEARTH_ANY_RANK, tag, &message, &status), "a claim");
            int of = (int)status.rank;
            must(hearth_improbe(of, tag, &found, &other, &status), "a second claim");
            holds(!found && other == HEARTH_NO_MESSAGE, "a message that is kept was found");
            must(hearth_mrelease(&message), "letting it go");
            must(hearth_improbe(from, tag, &found, &message, &status), "a claim again");
            holds(found && (int)status.rank == from, "it was let go");
            memset(room, 0, sizeof room);
            must(hearth_mrecv(room, sizeof room, &message, &status), "receiving it");
            holds(message == HEARTH_NO_MESSAGE && status.bytes == lengths[tag], "what it was");
            for (size_t at = 0; at < lengths[tag]; at++)
                holds(room[at] == (unsigned char)from, "another byte");
            message = 12345;
            holds(hearth_mrecv(room, sizeof room, &message, NULL) == HEARTH_EINVAL, "a message that is none");
        }
}

static void synchronous(void)
{
    int to = (rank + 1) % size, from = (rank + size - 1) % size, done = 1;
    hearth_request request;
    must(hearth_issend(sent, 10, to, 5, &request), "a synchronous send");
    double until = hearth_wtime() + 0.2;
    while (hearth_wtime() < until) {
        must(hearth_test(&request, &done, NULL), "a look at it");
        holds(!done, "it is done before it was received");
    }
    must(hearth_barrier(), "barrier");
    struct hearth_status status;
    must(hearth_recv(room, sizeof room, from, 5, &status), "receiving it");
    holds(status.bytes == 10, "its length");
    must(hearth_wait(&request, NULL), "it was received");
}

/* Operations of a context of one's own, as a binding posts them. */
static void posted(void)
{
    struct hearth_operation take = {.kind = HEARTH_RECEIVE, .rank = (uint32_t)((rank + size - 1) % size),
                                    .context = 9, .tag = 1u << 31, .receive = room, .receive_bytes = 100};
    struct hearth_operation give = {.kind = HEARTH_SEND, .flags = HEARTH_SYNCHRONOUS,
                                    .rank = (uint32_t)((rank + 1) % size), .context = 9, .tag = 1u << 31,
                                    .send = sent, .send_bytes = 100};
    hearth_request requests[2];
    must(hearth_post(&take, &requests[0]), "a receive that is posted");
    must(hearth_post(&give, &requests[1]), "a send that is posted");
    must(hearth_waitall(2, requests, NULL), "both");
    give.context = 1 << 15;
    holds(hearth_post(&give, &requests[0]) == HEARTH_EINVAL, "a context of the library's");
    struct hearth_operation look = {.kind = HEARTH_PROBE, .flags = HEARTH_NOW | HEARTH_FROM_ANY | HEARTH_WITH_ANY,
                                    .context = 9};
    must(hearth_post(&look, &requests[0]), "a probe that is posted");
    holds(requests[0] == HEARTH_NO_REQUEST, "it found nothing");
}

/* As many receives as there may be, or as the node has memory for; then messages for all of them, the
 * last first. */
static void many(void)
{
    static hearth_request requests[MOST + 1];
    static uint32_t rooms[MOST];
    int to = (rank + 1) % size, from = (rank + size - 1) % size, error = 0;
    uint32_t count = 0, theirs;
    while (count <= MOST && error == 0) {
        error = hearth_irecv(&rooms[count % MOST], sizeof *rooms, from, 100 + count, &requests[count]);
        count += error == 0;
    }
    holds(error == (count == MOST ? HEARTH_ENOBUFS : HEARTH_ENOMEM), "the end of them");
    holds(count > 256, "so few");
    /* Room for as many sends. */
    uint32_t most = count - count / 4;
    for (uint32_t at = most; at < count; at++)
        must(hearth_cancel(&requests[at]), "taking one back");
    must(hearth_send(&most, sizeof most, from, 99), "how many there are");
    must(hearth_recv(&theirs, sizeof theirs, to, 99, NULL), "how many there are");
    for (uint32_t at = theirs; at-- > 0;)
        must(hearth_send(&at, sizeof at, to, 100 + at), "one of many");
    must(hearth_waitall(most, requests, NULL), "all of them");
    for (uint32_t at = 0; at < most; at++)
        holds(rooms[at] == at, "another one");
}

int main(void)
{
    rank = hearth_rank();
    size = hearth_size();
    holds(size >= 3, "give it three ranks");
    memset(sent, rank, sizeof sent);
    hearth_request requests[KINDS];
    if (rank) {
        must(hearth_barrier(), "barrier");
        for (uint32_t tag = 0; tag < KINDS; tag++)
            must(hearth_isend(sent, lengths[tag], 0, tag, &requests[tag]), "a send");
        must(hearth_waitall(KINDS, requests, NULL), "sends");
    } else {
        looked_at();
    }
    synchronous();
    posted();
    must(hearth_barrier(), "barrier");
    many();
    must(hearth_barrier(), "barrier");
    /* All but the last rank end; rank 0 takes any rank's, and hears of the last one only. */
    if (rank == 0) {
        struct hearth_status status;
        must(hearth_recv(room, sizeof room, HEARTH_ANY_RANK, 6, &status), "a receive that outlives others");
        holds((int)status.rank == size - 1, "whose it was");
        holds(hearth_recv(room, sizeof room, HEARTH_ANY_RANK, 6, &status) == HEARTH_ELOST, "nobody is left");
        puts("ranks-probes: ok");
    } else if (rank == size - 1) {
        double until = hearth_wtime() + 3;
        while (hearth_wtime() < until)
            ;
        must(hearth_send(sent, 1, 0, 6), "the last message");
    }
    return 0;
}
