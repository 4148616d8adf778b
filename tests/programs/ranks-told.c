/* ranks-told HOW OPERATION RANK BYTES: a collective operation in which one rank does not do its
 * part. All others must get the error at once, and of that rank, not of one that gave up because of
 * it: so who has the error goes on, and ends only when all must have theirs.
 *
 *   end     the rank ends instead: HEARTH_ELOST
 *   size    the rank has half as many bytes: HEARTH_EPROTO, in that rank too
 *
 * Exit status 0: this rank has the error within 4 seconds and, where it is one of a lost rank, the
 * name. */
#include <hearth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WITHIN = 4 };

int main(int argc, char **argv)
{
    int rank = hearth_rank(), size = hearth_size();
    if (argc != 5 || rank < 0)
        return 2;
    int odd = atoi(argv[3]), is_end = strcmp(argv[1], "end") == 0;
    size_t bytes = (size_t)atol(argv[4]);
    char *data = calloc((size_t)size, bytes), *all = calloc((size_t)size, bytes);
    if (!data || !all || hearth_barrier() != 0)
        return 3;
    if (rank == odd) {
        if (is_end)
            return 0;
        bytes /= 2;
    }
    double began = hearth_wtime();
    int error = 0;
    if (strcmp(argv[2], "allreduce") == 0)
        error = hearth_allreduce(data, bytes / 8, HEARTH_INT64, HEARTH_SUM);
    else if (strcmp(argv[2], "reduce") == 0)
        error = hearth_reduce(data, bytes / 8, HEARTH_INT64, HEARTH_SUM, 0);
    else if (strcmp(argv[2], "bcast") == 0)
        error = hearth_bcast(data, bytes, 0);
    else if (strcmp(argv[2], "alltoall") == 0)
        error = hearth_alltoall(data, all, bytes);
    else
        return 2;
    int named = hearth_named_rank();
    double took = hearth_wtime() - began;
    int is_right = took < WITHIN && error == (is_end ? HEARTH_ELOST : HEARTH_EPROTO) && (!is_end || named == odd);
    printf("rank %d: %s of %zu bytes after %.2f s: %d, rank %d%s\n", rank, argv[2], bytes, took, error, named, is_right ? "" : ": wrong");
    fflush(stdout);
    while (hearth_wtime() - began < WITHIN + 1)
        usleep(100000);
    return !is_right;
}
