// ring in C++: every rank passes a vector on to the next one until each has its own back, and all add up what they have.
//
// What arrives is compared with what a serial run would have made of it.
#include <hearth.h>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

HEARTH_COUNTERS("steps");

static void must(int error, const char *what)
{
    if (error < 0)
        throw std::runtime_error(std::string(what) + ": " + hearth_strerror(error));
}

static std::vector<double> block_of(int rank, std::size_t count)
{
    std::vector<double> block(count);
    for (std::size_t at = 0; at < count; at++)
        block[at] = rank * 37.0 + static_cast<double>(at);
    return block;
}

static void ring(int rank, int size, std::size_t count)
{
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    std::vector<double> have = block_of(rank, count), get(count);
    const std::size_t bytes = count * sizeof(double);
    for (int step = 1; step <= size; step++) {
        hearth_request requests[2];
        hearth_status statuses[2];
        must(hearth_irecv(get.data(), bytes, previous, 1, &requests[0]), "posting a receive");
        must(hearth_isend(have.data(), bytes, next, 1, &requests[1]), "posting a send");
        must(hearth_waitall(2, requests, statuses), "shifting");
        if (get != block_of(((rank - step) % size + size) % size, count))
            throw std::runtime_error("another block than a serial run has after " + std::to_string(step) + " steps");
        have.swap(get);
        hearth_count(0, step);
    }
    std::vector<double> sum = block_of(rank, count), expected(count);
    must(hearth_allreduce(sum.data(), count, HEARTH_DOUBLE, HEARTH_SUM), "adding up");
    for (int other = 0; other < size; other++) {
        std::vector<double> block = block_of(other, count);
        for (std::size_t at = 0; at < count; at++)
            expected[at] += block[at];
    }
    if (sum != expected)
        throw std::runtime_error("another sum than a serial run has");
}

int main()
{
    int rank = hearth_rank(), size = hearth_size();
    try {
        must(rank, "rank");
        ring(rank, size, 5000);
        must(hearth_barrier(), "barrier");
    } catch (const std::exception &error) {
        std::fprintf(stderr, "ring: rank %d: %s\n", rank, error.what());
        return 1;
    }
    if (rank == 0)
        std::printf("ring: %d ranks, a vector passed on %d times: ok\n", size, size);
}
