/* A thread sends more short messages than may wait, to a rank that is not in MPI. Another thread of
 * the sender calls MPI meanwhile, and only then lets the receiver go on: by a file in /tmp, which
 * the two ranks of one node share. With MPI_THREAD_MULTIPLE nobody is held up.
 *
 * Prints "No Errors" from rank 0. */
#include <mpi.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

/* So many may wait in the sender; far more than the kernels of both ranks keep besides; and all. */
#define MAY_WAIT 4096
#define ENOUGH 6500
#define MESSAGES 8000
/* Nothing is sent in so many microseconds where a send waits. */
#define WATCH_MICROS 200000
/* The receiver looks so often whether it may go on, once a millisecond. */
#define LOOKS 60000
#define MAY_GO "/tmp/may-go"

static atomic_int sent;

static void *frees(void *unused)
{
    int before, found;
    (void) unused;
    do {
        before = sent;
        usleep(WATCH_MICROS);
    } while (before < MAY_WAIT || (sent < ENOUGH && sent != before));
    /* It wants the lock that the sender has. */
    MPI_Iprobe(1, 1, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    close(open(MAY_GO, O_WRONLY | O_CREAT, 0600));
    return NULL;
}

int main(int argc, char **argv)
{
    int rank, provided, errors = 0, all = 0, got;
    pthread_t thread;
    MPI_Request request;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    errors += provided != MPI_THREAD_MULTIPLE;
    if (rank == 0) {
        pthread_create(&thread, NULL, frees, NULL);
        for (int i = 0; i < MESSAGES; i++) {
            MPI_Isend(&i, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, &request);
            MPI_Request_free(&request);
            sent = i + 1;
        }
        pthread_join(thread, NULL);
    } else {
        for (int looks = 0; looks < LOOKS && access(MAY_GO, F_OK); looks++)
            usleep(1000);
        errors += access(MAY_GO, F_OK) != 0;
        for (int i = 0; i < MESSAGES; i++) {
            MPI_Recv(&got, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            errors += got != i;
        }
        unlink(MAY_GO);
    }
    MPI_Reduce(&errors, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf(" No Errors\n");
    MPI_Finalize();
    return errors != 0;
}
