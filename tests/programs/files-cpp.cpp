#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
namespace fs = std::filesystem;
int main() {
    fs::create_directories("cc/x/y");
    { std::ofstream out("cc/x/y/t"); for (int i = 0; i < 3000; i++) out << i << '\n'; }
    std::ifstream in("cc/x/y/t"); std::string line; int n = 0; while (std::getline(in, line)) n++;
    std::cout << n << ' ' << fs::file_size("cc/x/y/t") << '\n';
    fs::copy_file("cc/x/y/t", "cc/u");
    fs::rename("cc/u", "cc/v");
    fs::create_symlink("v", "cc/w");
    std::cout << fs::read_symlink("cc/w") << ' ' << fs::exists("cc/u") << ' ' << fs::equivalent("cc/w", "cc/v") << '\n';
    int count = 0; for (auto &e : fs::recursive_directory_iterator("cc")) { (void)e; count++; }
    std::cout << count << '\n';
    fs::resize_file("cc/v", 10); std::cout << fs::file_size("cc/w") << '\n';
    std::cout << fs::space(".").capacity / fs::space(".").capacity << '\n';
    std::cout << fs::remove_all("cc") << '\n';
}
