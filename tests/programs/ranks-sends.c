/* ranks-sends: every rank but 0 sends it a number and ends at once, perhaps before its node knows
 * where rank 0 is. Exit status 0: rank 0 has all of them. */
#include <hearth.h>
#include <stdio.h>

int main(void)
{
    int rank = hearth_rank(), size = hearth_size();
    int64_t number = rank;
    if (rank != 0)
        return hearth_send(&number, sizeof number, 0, 5) < 0;
    for (int from = 1; from < size; from++) {
        number = 0;
        if (hearth_recv(&number, sizeof number, from, 5, 0) < 0 || number != from)
            return 1;
    }
    puts("all there: ok");
    return 0;
}
