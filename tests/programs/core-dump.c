/* core-dump: one rank's second thread crashes four calls deep while another turns in circles and the
 * first waits: what a debugger must show of each. Rank `argv[1]` crashes; without one all do. The
 * heap has `argv[2]` MiB, so that a core file has something to leave out. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int known_number = 424242;
char *heap;
static atomic_int ready;
static volatile int *volatile nowhere = (int *)0x40;

__attribute__((noinline)) static void writes_to_nothing(volatile int *place, int value)
{
    *place = value;
}

__attribute__((noinline)) static int third_step(int depth)
{
    writes_to_nothing(nowhere, depth);
    return depth + known_number;
}

__attribute__((noinline)) static int second_step(int depth)
{
    return third_step(depth + 1) + 1;
}

static void *first_step(void *argument)
{
    while (atomic_load(&ready) == 0)
        usleep(1000);
    return (void *)(long)(second_step((int)(long)argument) + 1);
}

__attribute__((noinline)) static void turns_in_circles(void)
{
    atomic_store(&ready, 1);
    for (;;)
        __asm__ volatile("pause");
}

static void *turner(void *argument)
{
    turns_in_circles();
    return argument;
}

int main(int argc, char **argv)
{
    const char *rank = getenv("HEARTH_RANK");
    size_t heap_bytes = (argc > 2 ? (size_t)atoi(argv[2]) : 1) << 20;
    heap = malloc(heap_bytes);
    if (!heap)
        return 3;
    memset(heap, 'h', heap_bytes);
    printf("core-dump: about to crash\n");
    fflush(stdout);
    if (argc > 1 && rank && strcmp(argv[1], rank) != 0)
        return 0;
    pthread_t threads[2];
    if (pthread_create(&threads[0], NULL, turner, NULL)
        || pthread_create(&threads[1], NULL, first_step, (void *)7L))
        return 5;
    pthread_join(threads[1], NULL);
    return 6;
}
