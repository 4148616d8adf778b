// omp-cpp: OpenMP in C++: reductions of the program's own types, exceptions that stay in their
// thread, tasks over a container, containers that threads fill side by side. With OMP_NUM_THREADS
// in the environment the default team has that many. The last line is "omp-cpp: ok".
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <list>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#define HOLDS(what)                                                          \
    do {                                                                     \
        if (!(what)) {                                                       \
            std::cout << "omp-cpp: line " << __LINE__ << ": " #what << '\n'; \
            std::exit(1);                                                    \
        }                                                                    \
    } while (0)

namespace {

struct Range {
    int least = 1 << 30, most = -1;
    void take(const Range &other) {
        least = std::min(least, other.least);
        most = std::max(most, other.most);
    }
};
#pragma omp declare reduction(widen : Range : omp_out.take(omp_in))

constexpr int many = 20000;

void reductions() {
    Range range;
    std::vector<int> squares(many);
#pragma omp parallel for reduction(widen : range)
    for (int i = 0; i < many; i++) {
        squares[i] = i % 1000;
        range.take({i, i});
    }
    HOLDS(range.least == 0 && range.most == many - 1);
    long sum = 0;
#pragma omp parallel for reduction(+ : sum) schedule(guided)
    for (const int &square : squares) sum += square;
    HOLDS(sum == std::accumulate(squares.begin(), squares.end(), 0l));
}

void exceptions() {
    std::atomic<int> caught = 0;
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < 100; i++) {
        try {
            if (i % 3 == 0) throw std::runtime_error(std::to_string(i));
        } catch (const std::runtime_error &error) {
            if (error.what() == std::to_string(i)) caught++;
        }
    }
    HOLDS(caught == 34);
}

void tasks() {
    std::list<std::string> words(50, "word");
#pragma omp parallel
#pragma omp single
    for (auto &word : words) {
#pragma omp task firstprivate(word) shared(words)
        {
            std::string own = word + word;
            if (own.size() != 8) std::abort();
        }
#pragma omp task shared(word)
        word += '!';
#pragma omp taskwait
    }
    HOLDS(std::all_of(words.begin(), words.end(), [](auto &word) { return word == "word!"; }));
}

void containers() {
    std::vector<int> all;
#pragma omp parallel
    {
        std::vector<int> own;
#pragma omp for nowait
        for (int i = 0; i < many; i++) own.push_back(i);
#pragma omp critical
        all.insert(all.end(), own.begin(), own.end());
    }
    std::sort(all.begin(), all.end());
    HOLDS(all.size() == many && all.front() == 0 && all.back() == many - 1);
}

}  // namespace

int main() {
    const char *given = std::getenv("OMP_NUM_THREADS");
    int team = 0, wanted = given ? std::atoi(given) : omp_get_num_procs();
#pragma omp parallel
#pragma omp single
    team = omp_get_num_threads();
    HOLDS(team == wanted);
    reductions();
    exceptions();
    tasks();
    containers();
    std::cout << "omp-cpp: ok" << std::endl;
}
