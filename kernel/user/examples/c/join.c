/* join: the equi-join of two relations that are spread over the ranks in no order. Each rank sends
 * every tuple to the rank that its key belongs to (a repartition: an all-to-all exchange with
 * blocks of any length), then joins what it has.
 *
 * The number of pairs and a sum over them are compared with those of a serial join of the whole
 * relations. */
#include <hearth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tuple {
    uint32_t key, value;
};

static void must(int error, const char *what)
{
    if (error < 0) {
        fprintf(stderr, "join: %s: %s\n", what, hearth_strerror(error));
        exit(1);
    }
}

static void *room(size_t bytes)
{
    void *memory = calloc(bytes ? bytes : 1, 1);
    if (!memory)
        must(HEARTH_ENOMEM, "relations");
    return memory;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Tuple `at` of relation `which` on a rank; small keys are frequent. */
static struct tuple tuple_of(int which, int rank, size_t at, uint32_t keys)
{
    uint64_t draw = mix((uint64_t)which << 60 ^ (uint64_t)rank << 40 ^ at);
    uint32_t limit = draw & 1 ? keys : keys / 8 + 1;
    return (struct tuple){(uint32_t)(draw >> 1) % limit, (uint32_t)(draw >> 33)};
}

static int owner(uint32_t key, int size)
{
    return (int)(mix(key) % (uint64_t)size);
}

/* Joins by a table of chains; gives the number of pairs and a sum over them. */
static void join(const struct tuple *r, size_t rs, const struct tuple *s, size_t ss, uint32_t keys, uint64_t result[2])
{
    uint32_t *head = room(keys * sizeof *head), *next = room(rs * sizeof *next);
    for (size_t at = 0; at < rs; at++) {
        next[at] = head[r[at].key];
        head[r[at].key] = (uint32_t)at + 1;
    }
    result[0] = result[1] = 0;
    for (size_t at = 0; at < ss; at++)
        for (uint32_t link = head[s[at].key]; link; link = next[link - 1]) {
            result[0]++;
            result[1] += mix((uint64_t)r[link - 1].value << 32 | s[at].value);
        }
    free(head);
    free(next);
}

/* Sends every tuple to its owner; gives those that this rank owns. */
static struct tuple *repartition(int which, int rank, int size, size_t tuples, uint32_t keys, size_t *found)
{
    size_t ranks = (size_t)size;
    size_t *to = room(ranks * sizeof *to), *to_at = room(ranks * sizeof *to_at);
    size_t *from = room(ranks * sizeof *from), *from_at = room(ranks * sizeof *from_at), *fill = room(ranks * sizeof *fill);
    for (size_t at = 0; at < tuples; at++)
        to[owner(tuple_of(which, rank, at, keys).key, size)] += sizeof(struct tuple);
    must(hearth_alltoall(to, from, sizeof *to), "exchange of lengths");
    size_t sent = 0, received = 0;
    for (size_t other = 0; other < ranks; other++) {
        to_at[other] = fill[other] = sent;
        from_at[other] = received;
        sent += to[other];
        received += from[other];
    }
    char *send = room(sent);
    struct tuple *receive = room(received);
    for (size_t at = 0; at < tuples; at++) {
        struct tuple tuple = tuple_of(which, rank, at, keys);
        size_t *place = &fill[owner(tuple.key, size)];
        memcpy(send + *place, &tuple, sizeof tuple);
        *place += sizeof tuple;
    }
    must(hearth_alltoallv(send, to, to_at, receive, from, from_at), "repartition");
    free(send);
    free(to);
    free(to_at);
    free(from);
    free(from_at);
    free(fill);
    *found = received / sizeof(struct tuple);
    return receive;
}

int main(int argc, char **argv)
{
    size_t tuples = argc > 1 ? strtoul(argv[1], NULL, 10) : 2000;
    uint32_t keys = (uint32_t)tuples * 2 + 1;
    int rank = hearth_rank(), size = hearth_size();
    must(rank, "rank");
    size_t rs, ss;
    struct tuple *r = repartition(0, rank, size, tuples, keys, &rs);
    struct tuple *s = repartition(1, rank, size, tuples, keys, &ss);
    for (size_t at = 0; at < rs + ss; at++)
        if (owner((at < rs ? r[at] : s[at - rs]).key, size) != rank) {
            printf("join: rank %d got a tuple of another rank\n", rank);
            return 1;
        }
    uint64_t result[2];
    join(r, rs, s, ss, keys, result);
    must(hearth_reduce(result, 2, HEARTH_UINT64, HEARTH_SUM, 0), "sums");
    if (rank != 0)
        return 0;
    size_t all = tuples * (size_t)size;
    struct tuple *whole[2];
    for (int which = 0; which < 2; which++) {
        whole[which] = room(all * sizeof **whole);
        for (size_t at = 0; at < all; at++)
            whole[which][at] = tuple_of(which, (int)(at / tuples), at % tuples, keys);
    }
    uint64_t serial[2];
    join(whole[0], all, whole[1], all, keys, serial);
    if (result[0] != serial[0] || result[1] != serial[1]) {
        printf("join: %llu pairs with sum %llx, serial %llu with %llx\n", (unsigned long long)result[0],
               (unsigned long long)result[1], (unsigned long long)serial[0], (unsigned long long)serial[1]);
        return 1;
    }
    printf("join: %d ranks, %zu tuples each, %llu pairs: ok\n", size, tuples, (unsigned long long)result[0]);
    return 0;
}
