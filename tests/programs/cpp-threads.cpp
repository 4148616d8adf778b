// cpp-threads: threads as C++ programs use them: std::thread and std::jthread, exceptions in each,
// std::async and promises that carry them over, locks, conditions, atomics, data of each thread,
// statics that are made once, signals for one of them. The last line is "cpp-threads: ok".
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <future>
#include <iostream>
#include <mutex>
#include <numeric>
#include <queue>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

#define HOLDS(what)                                                          \
    do {                                                                     \
        if (!(what)) {                                                       \
            std::cout << "cpp-threads: line " << __LINE__ << ": " #what "\n"; \
            std::exit(1);                                                    \
        }                                                                    \
    } while (0)

namespace {

constexpr int threads = 8, rounds = 300;

thread_local int own = 5;
std::atomic<int> destroyed;

struct Counted {
    ~Counted() { destroyed++; }
};

void counting() {
    std::mutex mutex;
    long sum = 0;
    std::vector<std::thread> all;
    for (int number = 0; number < threads; number++)
        all.emplace_back([&, number] {
            own += number;
            for (int round = 0; round < rounds; round++) {
                std::lock_guard lock(mutex);
                sum += number;
            }
            HOLDS(own == 5 + number);
        });
    for (auto &thread : all) thread.join();
    HOLDS(own == 5 && sum == static_cast<long>(rounds) * threads * (threads - 1) / 2);
}

int deep(int depth) {
    Counted counted;
    if (depth == 0) throw std::out_of_range("the bottom");
    return deep(depth - 1) + 1;
}

void exceptions() {
    std::vector<std::thread> all;
    std::atomic<int> caught = 0;
    for (int i = 0; i < threads; i++)
        all.emplace_back([&] {
            for (int round = 0; round < 10; round++) try {
                    deep(10);
                } catch (const std::exception &error) {
                    caught += error.what() == std::string("the bottom");
                }
        });
    for (auto &thread : all) thread.join();
    HOLDS(caught == threads * 10 && destroyed == threads * 10 * 11);
}

long sum_of(const std::vector<int> &values, size_t from, size_t to) {
    if (to - from < 5000) return std::accumulate(&values[from], &values[to], 0L);
    size_t middle = (from + to) / 2;
    auto left = std::async(std::launch::async, sum_of, std::cref(values), from, middle);
    long right = sum_of(values, middle, to);
    return left.get() + right;
}

void tasks() {
    std::vector<int> values(60000);
    std::iota(values.begin(), values.end(), 0);
    HOLDS(sum_of(values, 0, values.size()) == 59999L * 30000);
    auto fails = std::async(std::launch::async, [] { return deep(3); });
    bool caught = false;
    try {
        fails.get();
    } catch (const std::out_of_range &) {
        caught = true;
    }
    HOLDS(caught);
    auto later = std::async(std::launch::deferred, [] { return std::this_thread::get_id(); });
    HOLDS(later.get() == std::this_thread::get_id());
    std::promise<std::string> promise;
    auto future = promise.get_future();
    HOLDS(future.wait_for(20ms) == std::future_status::timeout);
    std::thread sender([&] { promise.set_value("kept"); });
    HOLDS(future.get() == "kept");
    sender.join();
    std::promise<int> broken;
    auto result = broken.get_future();
    broken.set_exception(std::make_exception_ptr(std::runtime_error("on purpose")));
    try {
        result.get();
        HOLDS(false);
    } catch (const std::runtime_error &error) {
        HOLDS(error.what() == std::string("on purpose"));
    }
}

struct Once {
    static std::atomic<int> made;
    Once() {
        std::this_thread::sleep_for(5ms);
        made++;
    }
};
std::atomic<int> Once::made;

Once &once() {
    static Once single;
    return single;
}

void queue() {
    std::mutex mutex;
    std::condition_variable changed;
    std::queue<int> waiting;
    bool over = false;
    std::atomic<long> sum = 0;
    std::vector<std::thread> all;
    for (int i = 0; i < threads; i++)
        all.emplace_back([&] {
            once();
            for (;;) {
                std::unique_lock lock(mutex);
                changed.wait(lock, [&] { return over || !waiting.empty(); });
                if (waiting.empty()) return;
                sum += waiting.front();
                waiting.pop();
            }
        });
    for (int i = 0; i < rounds; i++) {
        std::lock_guard lock(mutex);
        waiting.push(i);
        changed.notify_one();
    }
    {
        std::lock_guard lock(mutex);
        over = true;
    }
    changed.notify_all();
    for (auto &thread : all) thread.join();
    HOLDS(sum == static_cast<long>(rounds) * (rounds - 1) / 2 && Once::made == 1);
    HOLDS(std::thread::hardware_concurrency() >= 1);
}

std::atomic<int> signalled;
thread_local volatile std::sig_atomic_t own_signals;

// A signal for one thread, whose handler uses what that thread has of its own.
void signals() {
    struct sigaction action = {};
    action.sa_handler = [](int) {
        own_signals = own_signals + 1;
        signalled++;
    };
    HOLDS(sigaction(SIGUSR1, &action, nullptr) == 0);
    std::atomic<bool> ready = false;
    int seen = 0;
    std::thread thread([&] {
        ready = true;
        while (signalled < 3) std::this_thread::sleep_for(1ms);
        seen = own_signals;
    });
    while (!ready) std::this_thread::yield();
    for (int i = 0; i < 3; i++) {
        HOLDS(pthread_kill(thread.native_handle(), SIGUSR1) == 0);
        while (signalled <= i) std::this_thread::yield();
    }
    thread.join();
    HOLDS(seen == 3 && own_signals == 0);
}

}  // namespace

int main() {
    counting();
    exceptions();
    tasks();
    queue();
    signals();
    std::cout << "cpp-threads: ok" << std::endl;
}
