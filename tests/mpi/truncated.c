/* A receive that is too short gets MPI_ERR_TRUNCATE, and takes no memory for what does not fit:
 * posted before the message comes and after it, in one piece and not. Of a long message nothing is
 * there then, of a short one at most what fits. Later messages arrive.
 *
 * Prints "No Errors" from rank 0. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a node's 192 MB. */
#define LONG (80 << 20)
#define SHORT 16
#define TAGS 8

static int errors;

static void expect(int is_right, int tag, const char *what)
{
    if (!is_right) {
        fprintf(stderr, "tag %d: %s\n", tag, what);
        errors++;
    }
}

int main(int argc, char **argv)
{
    int rank, all = 0, last = 0;
    MPI_Datatype every_other;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Type_vector(2, 1, 2, MPI_INT, &every_other);
    MPI_Type_commit(&every_other);
    char *data = malloc(LONG);
    memset(data, 1, LONG);
    for (int tag = 0; tag < TAGS; tag++) {
        int is_posted = tag & 1, is_straight = tag & 2, bytes = tag & 4 ? SHORT : LONG;
        int room[4] = {0}, class = MPI_SUCCESS;
        MPI_Request request;
        MPI_Status status = {.MPI_ERROR = MPI_SUCCESS};
        MPI_Datatype type = is_straight ? MPI_INT : every_other;
        if (rank == 1 && is_posted)
            MPI_Irecv(room, is_straight ? 2 : 1, type, 0, tag, MPI_COMM_WORLD, &request);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            MPI_Isend(data, bytes, MPI_BYTE, 1, tag, MPI_COMM_WORLD, &request);
            MPI_Barrier(MPI_COMM_WORLD);
            expect(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS, tag, "the send failed");
        } else {
            MPI_Barrier(MPI_COMM_WORLD);
            int error = is_posted ? MPI_Wait(&request, &status)
                : MPI_Recv(room, is_straight ? 2 : 1, type, 0, tag, MPI_COMM_WORLD, &status);
            MPI_Error_class(error, &class);
            expect(class == MPI_ERR_TRUNCATE, tag, "no MPI_ERR_TRUNCATE");
            if (bytes == LONG)
                expect(!room[0] && !room[1] && !room[2], tag, "some of it was received");
            /* In one piece two have room, else the first and the third. */
            expect(room[is_straight ? 2 : 1] == 0 && room[3] == 0, tag,
                   "more was written than there is room for");
        }
    }
    if (rank == 0)
        last = 7;
    MPI_Bcast(&last, 1, MPI_INT, 0, MPI_COMM_WORLD);
    expect(last == 7, TAGS, "what was sent later did not come");
    MPI_Reduce(&errors, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf(" No Errors\n");
    MPI_Type_free(&every_other);
    MPI_Finalize();
    return errors != 0;
}
