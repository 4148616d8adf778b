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

/* Far more than the kernels of both ranks keep, and the limit of the sender's. */
#define MESSAGES 16000
/* In so many microseconds fewer messages go out than these where sends wait. */
#define WATCH_MICROS 200000
#define FEW 400
/* The receiver looks so often whether it may go on, once a millisecond. */
#define LOOKS 60000
#define MAY_GO "/tmp/may-go"

static atomic_int sent;
static int waited;

static void *frees(void *unused)
{
    int before, found;
    (void) unused;
    do {
        before = sent;
        usleep(WATCH_MICROS);
    } while (sent < MESSAGES && (before < 4096 || sent - before > FEW));
    waited = sent < MESSAGES;
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
        if (!waited) {
            fprintf(stderr, "all messages went out at once: the limit was not reached\n");
            errors++;
        }
    } else {
        for (int looks = 0; looks < LOOKS && access(MAY_GO, F_OK); looks++)
            usleep(1000);
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
