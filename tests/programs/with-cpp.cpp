// with-cpp NAME BYTES SEED: the file /with/NAME through C++ streams and std::filesystem. Its bytes are
// those that with-c.c says. Prints one line and exits with 0, or says what differs and exits with 1.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

static std::uint32_t seed;

static unsigned char expected(std::size_t at)
{
    return (static_cast<std::uint32_t>(at) * 2654435761u + seed) >> 13;
}

static void check(bool right, const char *what)
{
    if (right)
        return;
    std::cout << what << std::endl;
    std::exit(1);
}

int main(int argc, char **argv)
{
    check(argc == 4, "usage: with-cpp NAME BYTES SEED");
    const std::size_t bytes = std::stoul(argv[2]);
    seed = static_cast<std::uint32_t>(std::stoul(argv[3]));
    const std::filesystem::path path = std::filesystem::path("/with") / argv[1];
    check(std::filesystem::file_size(path) == bytes, "file_size");
    check(std::filesystem::is_regular_file(path), "is_regular_file");
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> all{std::istreambuf_iterator<char>(file), {}};
    check(all.size() == bytes, "length read");
    for (std::size_t at = 0; at < bytes; at++)
        check(static_cast<unsigned char>(all[at]) == expected(at), "contents");
    file.clear();
    file.seekg(-1, std::ios::end);
    check(static_cast<unsigned char>(file.get()) == expected(bytes - 1), "seekg");
    std::size_t entries = 0;
    for (const auto &entry : std::filesystem::directory_iterator("/with"))
        entries += entry.path() == path;
    check(entries == 1, "directory_iterator");
    check(!std::ifstream("/with/there is no such file"), "a file that is not there");
    check(!std::ofstream(path), "a file opened to be written");
    std::cout << bytes << " bytes of " << argv[1] << " are right" << std::endl;
}
