/* shared-memory: named semaphores and shared memory objects, between the threads of a program: what
 * one mapping is written to the others and the calls see, who waits at one mapping is woken at
 * another, and what was removed is gone when nobody has it any more. The last line is
 * "shared-memory: ok". It ends so on Linux, too. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef NAME
#define NAME "shared-memory"
#endif

enum { PAGE = 4096, PAGES = 4 };
/* Of futex, whose header not every C library has. */
enum { FUTEX_WAIT = 0, FUTEX_WAKE = 1 };

static void fail(const char *what, int line)
{
    printf(NAME ": line %d: %s: %s\n", line, what, strerror(errno));
    exit(1);
}

#define HOLDS(what)                  \
    do {                             \
        if (!(what))                 \
            fail(#what, __LINE__);   \
    } while (0)
#define REFUSED(what, error) HOLDS((what) == -1 && errno == (error))

static char path[64], other[64], semaphore[64];
static sigjmp_buf back;

static void on_bus(int number)
{
    (void)number;
    siglongjmp(back, 1);
}

static int is_bus_error(volatile char *at)
{
    if (sigsetjmp(back, 1))
        return 1;
    *at = 1;
    return 0;
}

static char *map(int fd, int protection, int flags)
{
    void *at = mmap(NULL, PAGES * PAGE, protection, flags, fd, 0);
    HOLDS(at != MAP_FAILED);
    return at;
}

struct meeting {
    atomic_uint word;
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    int is_set;
};

static void *wake(void *argument)
{
    struct meeting *here = argument;
    while (syscall(SYS_futex, &here->word, FUTEX_WAKE, 1, NULL, NULL, 0) == 0)
        usleep(1000);
    pthread_mutex_lock(&here->mutex);
    here->is_set = 1;
    pthread_cond_signal(&here->condition);
    pthread_mutex_unlock(&here->mutex);
    return NULL;
}

/* Threads that know an object by two addresses meet. */
static void meet(int fd)
{
    struct meeting *one = (void *)map(fd, PROT_READ | PROT_WRITE, MAP_SHARED);
    struct meeting *two = (void *)map(fd, PROT_READ | PROT_WRITE, MAP_SHARED);
    HOLDS(one != two);
    memset(one, 0, sizeof *one);
    pthread_mutexattr_t of_mutex;
    pthread_condattr_t of_condition;
    pthread_mutexattr_init(&of_mutex);
    pthread_condattr_init(&of_condition);
    HOLDS(pthread_mutexattr_setpshared(&of_mutex, PTHREAD_PROCESS_SHARED) == 0);
    HOLDS(pthread_condattr_setpshared(&of_condition, PTHREAD_PROCESS_SHARED) == 0);
    HOLDS(pthread_mutex_init(&one->mutex, &of_mutex) == 0);
    HOLDS(pthread_cond_init(&one->condition, &of_condition) == 0);
    pthread_t thread;
    HOLDS(pthread_create(&thread, NULL, wake, two) == 0);
    HOLDS(syscall(SYS_futex, &one->word, FUTEX_WAIT, 0, NULL, NULL, 0) == 0);
    pthread_mutex_lock(&one->mutex);
    while (!one->is_set)
        pthread_cond_wait(&one->condition, &one->mutex);
    pthread_mutex_unlock(&one->mutex);
    pthread_join(thread, NULL);
    HOLDS(munmap(one, PAGES * PAGE) == 0 && munmap(two, PAGES * PAGE) == 0);
}

static void *post(void *argument)
{
    (void)argument;
    sem_t *here = sem_open(semaphore, 0);
    HOLDS(here != SEM_FAILED);
    usleep(20000);
    HOLDS(sem_post(here) == 0 && sem_close(here) == 0);
    return NULL;
}

static void semaphores(void)
{
    sem_t *first = sem_open(semaphore, O_CREAT | O_EXCL, 0600, 1);
    HOLDS(first != SEM_FAILED);
    HOLDS(sem_open(semaphore, O_CREAT | O_EXCL, 0600, 1) == SEM_FAILED && errno == EEXIST);
    HOLDS(sem_open(semaphore, 0) == first);
    HOLDS(sem_trywait(first) == 0);
    pthread_t thread;
    HOLDS(pthread_create(&thread, NULL, post, NULL) == 0);
    HOLDS(sem_wait(first) == 0);
    pthread_join(thread, NULL);
    HOLDS(sem_unlink(semaphore) == 0);
    REFUSED(sem_unlink(semaphore), ENOENT);
    /* It stays for who has it open, and another one may have its name. */
    sem_t *second = sem_open(semaphore, O_CREAT | O_EXCL, 0600, 7);
    HOLDS(second != SEM_FAILED && second != first);
    int value;
    HOLDS(sem_post(first) == 0 && sem_getvalue(first, &value) == 0 && value == 1);
    HOLDS(sem_getvalue(second, &value) == 0 && value == 7);
    HOLDS(sem_close(first) == 0 && sem_close(first) == 0 && sem_close(second) == 0);
    HOLDS(sem_unlink(semaphore) == 0);
    /* Many, one after the other: nothing of them stays. */
    for (int i = 0; i < 600; i++) {
        sem_t *one = sem_open(semaphore, O_CREAT, 0600, i);
        HOLDS(one != SEM_FAILED && sem_unlink(semaphore) == 0 && sem_close(one) == 0);
    }
}

static void objects(void)
{
    int fd = shm_open(path, O_RDWR | O_CREAT | O_EXCL, 0640);
    HOLDS(fd >= 0);
    REFUSED(shm_open(path, O_RDWR | O_CREAT | O_EXCL, 0640), EEXIST);
    struct stat status;
    HOLDS(fstat(fd, &status) == 0 && status.st_size == 0 && S_ISREG(status.st_mode));
    HOLDS((status.st_mode & 0777) == 0640 && status.st_nlink == 1);
    HOLDS(ftruncate(fd, PAGES * PAGE) == 0);
    char *one = map(fd, PROT_READ | PROT_WRITE, MAP_SHARED);
    char *two = map(fd, PROT_READ, MAP_SHARED);
    char *private = map(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    strcpy(one + PAGE - 2, "over two pages");
    HOLDS(strcmp(two + PAGE - 2, "over two pages") == 0);
    strcpy(private + PAGE, "my own");
    HOLDS(strcmp(one + PAGE - 2, "over two pages") == 0);
    HOLDS(msync(one, PAGES * PAGE, MS_SYNC) == 0 && fsync(fd) == 0);
    HOLDS(madvise(one, PAGES * PAGE, MADV_DONTNEED) == 0);
    char text[32] = "";
    HOLDS(pread(fd, text, 15, PAGE - 2) == 15 && strcmp(text, "over two pages") == 0);
    HOLDS(lseek(fd, 2 * PAGE, SEEK_SET) == 2 * PAGE);
    struct iovec parts[] = { { "by a", 4 }, { " call", 6 } };
    HOLDS(writev(fd, parts, 2) == 10 && strcmp(two + 2 * PAGE, "by a call") == 0);
    HOLDS(lseek(fd, 0, SEEK_CUR) == 2 * PAGE + 10);
    HOLDS(lseek(fd, -3, SEEK_END) == PAGES * PAGE - 3);
    HOLDS(write(fd, "grows", 5) == 5);
    HOLDS(fstat(fd, &status) == 0 && status.st_size == PAGES * PAGE + 2);
    HOLDS(read(fd, text, sizeof text) == 0);
    int appends = shm_open(path, O_RDWR | O_APPEND, 0);
    HOLDS(appends >= 0 && (fcntl(appends, F_GETFL) & O_ACCMODE) == O_RDWR);
    HOLDS(write(appends, "!", 1) == 1 && lseek(appends, 0, SEEK_CUR) == PAGES * PAGE + 3);
    HOLDS(close(appends) == 0);

    /* What is read only stays so. */
    int reads = shm_open(path, O_RDONLY, 0);
    HOLDS(reads >= 0);
    REFUSED(write(reads, "x", 1), EBADF);
    REFUSED(ftruncate(reads, 0), EINVAL);
    HOLDS(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, reads, 0) == MAP_FAILED && errno == EACCES);
    void *view = map(reads, PROT_READ, MAP_SHARED);
    REFUSED(mprotect(view, PAGE, PROT_READ | PROT_WRITE), EACCES);
    HOLDS(munmap(view, PAGES * PAGE) == 0 && close(reads) == 0);

    /* What is cut off is gone, and zeros when it comes again. */
    signal(SIGBUS, on_bus);
    HOLDS(ftruncate(fd, PAGE) == 0 && is_bus_error(one + PAGE) && is_bus_error(private + PAGE));
    HOLDS(!is_bus_error(one + PAGE - 1));
    HOLDS(ftruncate(fd, PAGES * PAGE) == 0 && one[PAGE] == 0 && two[2 * PAGE] == 0);
    HOLDS(posix_fallocate(fd, 0, (PAGES + 1) * PAGE) == 0);
    HOLDS(fstat(fd, &status) == 0 && status.st_size == (PAGES + 1) * PAGE);

    /* A mapping goes on with its object elsewhere. */
    strcpy(one + 3 * PAGE, "moved");
    char *moved = mremap(one, PAGES * PAGE, (PAGES + 1) * PAGE, MREMAP_MAYMOVE);
    HOLDS(moved != MAP_FAILED && strcmp(moved + 3 * PAGE, "moved") == 0);
    moved[4 * PAGE] = 'x';
    HOLDS(pread(fd, text, 1, 4 * PAGE) == 1 && text[0] == 'x');

    /* Names. */
    char full[96], second[96];
    snprintf(full, sizeof full, "/dev/shm%s", path);
    snprintf(second, sizeof second, "/dev/shm%s", other);
    HOLDS(link(full, second) == 0 && stat(second, &status) == 0 && status.st_nlink == 2);
    REFUSED(link(full, second), EEXIST);
    HOLDS(unlink(full) == 0 && access(full, F_OK) == -1 && access(second, R_OK | W_OK) == 0);
    HOLDS(rename(second, full) == 0 && access(second, F_OK) == -1);
    DIR *directory = opendir("/dev/shm");
    HOLDS(directory != NULL);
    int found = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        found += strcmp(entry->d_name, path + 1) == 0;
    HOLDS(found == 1 && closedir(directory) == 0);
    HOLDS(chmod(full, 0600) == 0 && fstat(fd, &status) == 0 && (status.st_mode & 0777) == 0600);

    meet(fd);

    /* It stays as long as anybody has it. */
    HOLDS(shm_unlink(path) == 0);
    REFUSED(shm_unlink(path), ENOENT);
    HOLDS(fstat(fd, &status) == 0 && status.st_nlink == 0);
    HOLDS(close(fd) == 0 && moved[4 * PAGE] == 'x');
    int again = shm_open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    HOLDS(again >= 0 && fstat(again, &status) == 0 && status.st_size == 0);
    HOLDS(moved[4 * PAGE] == 'x');
    HOLDS(munmap(moved, (PAGES + 1) * PAGE) == 0 && munmap(two, PAGES * PAGE) == 0);
    HOLDS(munmap(private, PAGES * PAGE) == 0);
    HOLDS(close(again) == 0 && shm_unlink(path) == 0);
}

int main(void)
{
    int who = (int)getpid();
    snprintf(path, sizeof path, "/hearth-one-%d", who);
    snprintf(other, sizeof other, "/hearth-two-%d", who);
    snprintf(semaphore, sizeof semaphore, "/hearth-three-%d", who);
    semaphores();
    objects();
    printf(NAME ": ok\n");
    return 0;
}
