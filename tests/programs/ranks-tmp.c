/* ranks-tmp: the ranks of a node use /tmp together. Each leaves a file there for the others, adds to
 * a number under a lock, and the first fills what room is left. What another job has left is told.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { ADDS = 20, PAUSE_US = 2000, PAUSES = 15000, PIECE = 1 << 20 };

static const char *job;
static char piece[PIECE];

static void fail(const char *what) {
    printf("%s: %s\n", what, strerrorname_np(errno));
    exit(1);
}

/* Files of this job in /tmp; those of others are told. Directories are exports. */
static int there(void) {
    DIR *directory = opendir("/tmp");
    if (!directory)
        fail("opendir");
    int count = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (entry->d_type == DT_DIR)
            continue;
        const char *dash = strchr(entry->d_name, '-');
        if (dash && strcmp(dash + 1, job) == 0)
            count++;
        else
            printf("left over: %s\n", entry->d_name);
    }
    closedir(directory);
    return count;
}

static int number(int fd, int more) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 16};
    if (fcntl(fd, F_SETLKW, &lock) < 0)
        fail("lock");
    char text[17] = "";
    if (pread(fd, text, 16, 0) < 0)
        fail("pread");
    int now = atoi(text) + more;
    usleep(PAUSE_US);
    snprintf(text, sizeof text, "%15d", now);
    if (more && pwrite(fd, text, 16, 0) != 16)
        fail("pwrite");
    lock.l_type = F_UNLCK;
    if (fcntl(fd, F_SETLK, &lock) < 0)
        fail("unlock");
    return now;
}

int main(int argc, char **argv) {
    int rank = atoi(getenv("HEARTH_RANK")), here = argc > 1 ? atoi(argv[1]) : 1;
    job = getenv("HEARTH_JOB");
    char name[64];
    snprintf(name, sizeof name, "/tmp/rank%d-%s", rank, job);
    int own = open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
    if (own < 0 || write(own, name, sizeof name) != sizeof name)
        fail(name);
    int pauses = 0;
    while (there() < here && pauses++ < PAUSES)
        usleep(PAUSE_US);
    printf("%d files\n", there() >= here ? here : there());
    snprintf(name, sizeof name, "/tmp/number-%s", job);
    int fd = open(name, O_CREAT | O_RDWR, 0600);
    if (fd < 0)
        fail(name);
    for (int i = 0; i < ADDS; i++)
        number(fd, 1);
    while (number(fd, 0) < here * ADDS && pauses++ < PAUSES)
        usleep(PAUSE_US);
    printf("sum %d\n", number(fd, 0));
    if (rank > 0)
        return 0;
    struct statvfs room;
    if (statvfs("/tmp", &room) < 0)
        fail("statvfs");
    unsigned long long bytes = 0, most = (unsigned long long)room.f_blocks * room.f_bsize;
    memset(piece, 7, sizeof piece);
    for (ssize_t written; (written = write(own, piece, sizeof piece)) > 0;)
        bytes += written;
    printf("full: %s\n", strerrorname_np(errno));
    printf("a good part: %d\n", bytes > most / 2 && bytes <= most);
    if (ftruncate(own, 0) < 0 || pwrite(own, piece, PIECE, 0) != PIECE)
        fail("room again");
    if (fstatvfs(own, &room) < 0 || room.f_bfree == 0)
        fail("free again");
    return 0;
}
