// hello-cpp: iostreams, exceptions and a container, so that the C++ run time is really used.
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

int main() {
    std::vector<std::string> words{"hello", "from", "hello-cpp,", "rank"};
    const char *rank = std::getenv("HEARTH_RANK"), *size = std::getenv("HEARTH_SIZE");
    try {
        if (!rank) throw std::runtime_error("HEARTH_RANK is not set");
        for (const auto &w : words) std::cout << w << ' ';
        std::cout << rank << " of " << (size ? size : "?") << std::endl;
    } catch (const std::exception &e) {
        std::cerr << "hello-cpp: " << e.what() << std::endl;
        return 1;
    }
    return 0;
}
