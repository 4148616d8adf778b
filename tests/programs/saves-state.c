/* saves-state compute|wait|deaf: computes, or waits for ever, until somebody tells it to end by
 * SIGTERM; then it says that it has saved its state, and exits with status 7. SIGUSR1 is answered
 * with a line. With "deaf" it ignores SIGTERM. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void say(const char *line)
{
    if (write(1, line, strlen(line)) < 0)
        _exit(2);
}

static void save(int signal)
{
    (void)signal;
    say("saves-state: saved\n");
    _exit(7);
}

static void report(int signal)
{
    (void)signal;
    say("saves-state: goes on\n");
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "wait";
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = report;
    sigaction(SIGUSR1, &action, NULL);
    action.sa_handler = strcmp(how, "deaf") == 0 ? SIG_IGN : save;
    sigaction(SIGTERM, &action, NULL);
    say("saves-state: ready\n");
    for (;;) {
        if (strcmp(how, "wait") == 0)
            pause();
        for (volatile int i = 0; i < 100000; i++)
            ;
    }
}
