// Stands under the name of each program in a bundle (docs/bundle.md) and becomes that program:
// static, so that it starts where there is no library and no dynamic loader at all, and from
// whatever folder the bundle lies in. It runs the bundle's own loader, which lies beside it:
// /proc/self/exe of the program is then that loader, so that programs find each other, and what
// else lies beside them, where they look for it. Built with LIBTORCH_OF_THE_MACHINE for programs
// whose LibTorch is not in the bundle: it lies where deploy/use_torch has made out/torch lead to.
#include <dirent.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

#ifdef LIBTORCH_OF_THE_MACHINE
constexpr bool kTorchOfTheMachine = true;
#else
constexpr bool kTorchOfTheMachine = false;
#endif

// torch/lib and each nvidia/*/lib in a folder of Python packages, as a library path; empty where
// LibTorch is not in it. Real paths: the link may be made anew while a program runs.
std::string TorchLibraries(const std::string& packages) {
  char real[PATH_MAX];
  if (realpath(packages.c_str(), real) == nullptr) return "";
  const std::string top = real;
  std::string libraries = top + "/torch/lib";
  if (access((libraries + "/libtorch_cpu.so").c_str(), R_OK) != 0) return "";
  dirent** found = nullptr;
  const int count = scandir((top + "/nvidia").c_str(), &found, nullptr, alphasort);
  for (int i = 0; i < count; ++i) {
    const std::string name = found[i]->d_name;
    const std::string folder = top + "/nvidia/" + name + "/lib";
    if (name[0] != '.' && access(folder.c_str(), X_OK) == 0) libraries += ":" + folder;
    std::free(found[i]);
  }
  std::free(found);
  return libraries;
}

}  // namespace

int main(int, char** argv) {
  char place[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", place, sizeof place);
  if (size <= 0 || size == sizeof place) {
    std::fprintf(stderr, "%s: cannot tell where it lies: is /proc mounted?\n", argv[0]);
    return 2;
  }
  const std::string self(place, static_cast<size_t>(size));
  const std::string bin = self.substr(0, self.rfind('/'));
  const std::string out = bin.substr(0, bin.rfind('/'));
  std::string loader = bin + "/parley-loader";
  std::string program = out + "/libexec" + self.substr(bin.size());
  // The bundle's libraries first, whatever the site has; then what the site adds, such as a driver.
  std::string libraries = out + "/lib";
  if (kTorchOfTheMachine) {
    const std::string torch = TorchLibraries(out + "/torch");
    if (torch.empty()) {
      std::fprintf(stderr,
                   "%s needs LibTorch, and %s/torch does not lead to it: run %s/deploy/use_torch "
                   "PYTHON, with a Python that has torch\n",
                   self.substr(bin.size() + 1).c_str(), out.c_str(),
                   out.substr(0, out.rfind('/')).c_str());
      return 2;
    }
    libraries += ":" + torch;
  }
  const char* const more = std::getenv("LD_LIBRARY_PATH");
  if (more != nullptr && *more != '\0') libraries += std::string(":") + more;
  std::string argv0 = "--argv0", library_path = "--library-path";
  std::vector<char*> command = {loader.data(),       argv0.data(),     argv[0],
                                library_path.data(), libraries.data(), program.data()};
  for (char** argument = argv + 1; *argument != nullptr; ++argument) command.push_back(*argument);
  command.push_back(nullptr);
  execv(command[0], command.data());
  std::fprintf(stderr, "%s: %s: %s: is the bundle whole?\n", argv[0], command[0],
               std::strerror(errno));
  return 2;
}
