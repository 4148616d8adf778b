/* ranks-groups: the ranks are a grid of two columns. A thread exchanges within the row while another
 * exchanges within the column, in blocks of several lengths; then groups that make no sense, and a
 * context that goes on in another group. Rank 0 prints "ranks-groups: ok". */
#include <hearth.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 2, ROWS_MOST = 8, LONGEST = 200000 };

static int rank, size;
static const size_t lengths[] = {8, 5000, LONGEST};

static void must(int error, const char *what)
{
    if (error < 0) {
        printf("ranks-groups: rank %d: %s: %s\n", rank, what, hearth_strerror(error));
        exit(1);
    }
}

static void holds(int is, const char *what)
{
    if (!is) {
        printf("ranks-groups: rank %d: %s\n", rank, what);
        exit(1);
    }
}

static unsigned char byte_of(uint32_t from, uint32_t to, size_t at)
{
    return (unsigned char)(from * 31 + to * 7 + at);
}

/* Exchanges blocks of every length within a group, and meets it in a barrier. */
static void exchange(const struct hearth_group *group)
{
    size_t all = group->size * (size_t)LONGEST;
    unsigned char *send = malloc(all), *receive = malloc(all);
    holds(send && receive, "no memory");
    for (size_t which = 0; which < sizeof lengths / sizeof *lengths; which++) {
        size_t bytes = lengths[which];
        for (uint32_t place = 0; place < group->size; place++)
            for (size_t at = 0; at < bytes; at++)
                send[place * bytes + at] = byte_of((uint32_t)rank, group->ranks[place], at);
        memset(receive, 0, all);
        must(hearth_group_alltoall(group, send, receive, bytes), "an exchange of a group");
        for (uint32_t place = 0; place < group->size; place++)
            for (size_t at = 0; at < bytes; at++)
                holds(receive[place * bytes + at] == byte_of(group->ranks[place], (uint32_t)rank, at),
                      "a block has other bytes");
    }
    must(hearth_group_barrier(group), "a barrier of a group");
    free(send);
    free(receive);
}

static void *in_column(void *column)
{
    exchange(column);
    return NULL;
}

/* Blocks of unequal lengths: place p gets p + 1 words of everybody. */
static void unequal(const struct hearth_group *group, uint32_t me)
{
    uint64_t send[ROWS_MOST * ROWS_MOST], receive[ROWS_MOST * ROWS_MOST];
    size_t counts[ROWS_MOST], offsets[ROWS_MOST], from_counts[ROWS_MOST], from_offsets[ROWS_MOST];
    size_t at = 0, from_at = 0;
    for (uint32_t place = 0; place < group->size; place++) {
        counts[place] = (place + 1) * sizeof *send;
        offsets[place] = at * sizeof *send;
        for (uint32_t word = 0; word <= place; word++)
            send[at++] = (uint64_t)rank * 1000 + place;
        from_counts[place] = (me + 1) * sizeof *send;
        from_offsets[place] = from_at * sizeof *send;
        from_at += me + 1;
    }
    must(hearth_group_alltoallv(group, send, counts, offsets, receive, from_counts, from_offsets),
         "an exchange of unequal blocks");
    for (uint32_t place = 0; place < group->size; place++)
        for (uint32_t word = 0; word <= me; word++)
            holds(receive[place * (me + 1) + word] == group->ranks[place] * 1000ull + me,
                  "an unequal block has other words");
}

/* Ranks that name different lists, and an exchange that meets a barrier: every rank gets an error
 * that names another one. Afterwards the context goes on at a number that all agree upon. */
static void disagree(const struct hearth_group *all)
{
    uint32_t turned[2 * ROWS_MOST];
    for (int at = 0; at < size; at++)
        turned[at] = all->ranks[size - 1 - at];
    struct hearth_group group = {rank ? all->ranks : turned, (uint32_t)size, 1, 60};
    holds(hearth_group_barrier(&group) == HEARTH_EPROTO, "a barrier of different lists");
    holds(hearth_named_rank() >= 0 && hearth_named_rank() != rank, "who is named");
    unsigned char *send = calloc((size_t)size, LONGEST), *receive = malloc((size_t)size * LONGEST);
    holds(send && receive, "no memory");
    group = (struct hearth_group){all->ranks, (uint32_t)size, 1, 70};
    int error = rank % 2 ? hearth_group_alltoall(&group, send, receive, LONGEST) : hearth_group_barrier(&group);
    holds(error == HEARTH_EPROTO, "an exchange that meets a barrier");
    holds(hearth_named_rank() >= 0 && hearth_named_rank() != rank, "who is named");
    free(send);
    free(receive);
    group.number = 80;
    must(hearth_group_barrier(&group), "the context goes on");
}

int main(void)
{
    rank = hearth_rank();
    size = hearth_size();
    int rows = size / COLUMNS, row = rank / COLUMNS, column = rank % COLUMNS;
    holds(rows * COLUMNS == size && rows <= ROWS_MOST, "give it an even number of ranks, at most 16");
    /* A row is named from its end: places are not in the order of ranks. */
    uint32_t in_row[COLUMNS], of_column[ROWS_MOST];
    for (int at = 0; at < COLUMNS; at++)
        in_row[at] = (uint32_t)(row * COLUMNS + COLUMNS - 1 - at);
    for (int at = 0; at < rows; at++)
        of_column[at] = (uint32_t)(at * COLUMNS + column);
    struct hearth_group rows_group = {in_row, COLUMNS, 1, 0};
    struct hearth_group columns_group = {of_column, (uint32_t)rows, 2, 0};
    pthread_t thread;
    holds(!pthread_create(&thread, NULL, in_column, &columns_group), "no thread");
    exchange(&rows_group);
    pthread_join(thread, NULL);
    unequal(&columns_group, (uint32_t)row);

    uint32_t others[] = {(uint32_t)((rank + 1) % size)};
    uint32_t twice[] = {(uint32_t)rank, (uint32_t)rank}, nobody[] = {(uint32_t)rank, 100000};
    struct hearth_group wrong = {others, 1, 3, 0};
    holds(hearth_group_barrier(&wrong) == HEARTH_EINVAL, "a group without this rank");
    wrong = (struct hearth_group){twice, 2, 3, 0};
    holds(hearth_group_barrier(&wrong) == HEARTH_EINVAL, "a rank that stands twice in a group");
    wrong = (struct hearth_group){nobody, 2, 3, 0};
    holds(hearth_group_barrier(&wrong) == HEARTH_EINVAL, "a rank that there is not");
    wrong = (struct hearth_group){in_row, 0, 3, 0};
    holds(hearth_group_barrier(&wrong) == HEARTH_EINVAL, "a group of nobody");
    wrong = (struct hearth_group){in_row, COLUMNS, 1 << 15, 0};
    holds(hearth_group_barrier(&wrong) == HEARTH_EINVAL, "a context of the library's");

    /* Each row has used context 1 alone; now all ranks do, and agree upon a number. */
    uint32_t *everybody = malloc((size_t)size * sizeof *everybody);
    holds(everybody != NULL, "no memory");
    for (int at = 0; at < size; at++)
        everybody[at] = (uint32_t)at;
    struct hearth_group all = {everybody, (uint32_t)size, 1, 50};
    must(hearth_group_barrier(&all), "a context that goes on");
    holds(hearth_group_barrier(&all) == HEARTH_EINVAL, "a number that was");
    disagree(&all);
    must(hearth_barrier(), "barrier");
    if (rank == 0)
        puts("ranks-groups: ok");
    return 0;
}
