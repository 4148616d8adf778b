/* One file from rank 0 to all ranks by MPI_Bcast; every other rank writes it, then gives it its
 * name.
 *
 * mpi-broadcast FILE FOLDER [leave]: rank R writes FOLDER/R/incoming and renames it to
 * FOLDER/R/file. Rank 0 prints the seconds from a barrier to the last rank's last byte. With
 * `leave` the processes end without MPI_Finalize.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void check(int good, const char *what) {
    if (!good) {
        perror(what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank;
    long bytes = 0;
    char *data = NULL;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    check(argc >= 3, "mpi-broadcast FILE FOLDER [leave]");
    if (rank == 0) {
        FILE *file = fopen(argv[1], "rb");
        check(file != NULL, argv[1]);
        fseek(file, 0, SEEK_END);
        bytes = ftell(file);
        rewind(file);
        data = malloc(bytes);
        check(data != NULL && fread(data, 1, bytes, file) == (size_t)bytes, argv[1]);
        fclose(file);
    }
    MPI_Bcast(&bytes, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    if (rank != 0)
        data = malloc(bytes);
    check(data != NULL, "memory");

    MPI_Barrier(MPI_COMM_WORLD);
    double seconds = MPI_Wtime(), slowest;
    MPI_Bcast(data, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    seconds = MPI_Wtime() - seconds;

    if (rank != 0) {
        char incoming[4096], whole[4096];
        snprintf(incoming, sizeof incoming, "%s/%d/incoming", argv[2], rank);
        snprintf(whole, sizeof whole, "%s/%d/file", argv[2], rank);
        FILE *file = fopen(incoming, "wb");
        check(file != NULL && fwrite(data, 1, bytes, file) == (size_t)bytes, incoming);
        check(fclose(file) == 0 && rename(incoming, whole) == 0, whole);
    }
    MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("data_s=%.6f\n", slowest);
        fflush(stdout);
    }
    if (argc > 3) {
        MPI_Barrier(MPI_COMM_WORLD);
        _exit(0);
    }
    MPI_Finalize();
    return 0;
}
