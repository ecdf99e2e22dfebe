#include "device/devices.h"

#include <dlfcn.h>
#include <ggml.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>
#include <system_error>

#include "base/process_memory.h"
#include "device/plugin.h"
#include "winnow/error.h"
#include "winnow/version.h"

namespace winnow::device {

// Null unless the program is linked with HostDevice.
[[gnu::weak]] std::shared_ptr<Device> open_host_device(int mib);

namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "libwinnow-cuda.so";
constexpr const char* kVariable = "WINNOW_CUDA_PLUGIN";

struct Name {
  enum class Kind { kCpu, kAuto, kCuda, kHost };
  Kind kind;
  int index = 0;
};

Name parse_name(std::string_view name) {
  if (name == "cpu") return {Name::Kind::kCpu};
  if (name == "auto") return {Name::Kind::kAuto};
  if (name == "cuda") return {Name::Kind::kCuda};
  if (name == "host" && open_host_device != nullptr) return {Name::Kind::kHost};
  // Returns the number after a prefix.
  const auto number_behind = [name](std::string_view prefix) -> std::optional<int> {
    if (!name.starts_with(prefix)) return std::nullopt;
    const std::string_view digits = name.substr(prefix.size());
    int number = 0;
    const auto [end, status] = std::from_chars(digits.begin(), digits.end(), number);
    if (status != std::errc() || end != digits.end() || digits.front() == '-') return std::nullopt;
    return number;
  };
  if (const std::optional<int> index = number_behind("cuda:")) return {Name::Kind::kCuda, *index};
  if (const std::optional<int> mib = number_behind("host:"); mib && open_host_device != nullptr) {
    return {Name::Kind::kHost, *mib};
  }
  throw Error(ErrorCode::kInvalidArgument, "there is no device '" + std::string(name.substr(0, 32)) +
                                               "': give cpu, auto, cuda or cuda:N with its number "
                                               "(`winnow info --devices` lists what there is)");
}

// Returns the folder of the program and that of the file that contains this code, which is another one in Python.
std::vector<fs::path> folders() {
  std::vector<fs::path> found;
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  if (!program.empty()) found.push_back(program.parent_path());
  static const char anchor = 0;
  Dl_info info{};
  if (dladdr(&anchor, &info) != 0 && info.dli_fname != nullptr) {
    const fs::path file = fs::canonical(info.dli_fname, ignored);
    if (!file.empty() && (found.empty() || file.parent_path() != found.front())) found.push_back(file.parent_path());
  }
  return found;
}

// Returns the plugin's path; nullopt if there is none. Throws Error(kNotFound) if the variable names a file that does
// not exist.
std::optional<fs::path> find_plugin() {
  std::error_code ignored;
  if (const char* named = std::getenv(kVariable); named != nullptr && *named != '\0') {
    if (fs::exists(named, ignored)) return fs::absolute(named, ignored);
    throw Error(ErrorCode::kNotFound, std::string(kVariable) + " names " + named +
                                          ", which does not exist: correct it, or unset it to use the one next to "
                                          "the program");
  }
  for (const fs::path& folder : folders()) {
    for (const fs::path& place : {folder / kLibrary, folder / "../lib/winnow" / kLibrary}) {
      if (fs::exists(place, ignored)) return place.lexically_normal();
    }
  }
  return std::nullopt;
}

std::string no_plugin() {
  return std::string("this winnow has no plugin for CUDA: build ") + kLibrary +
         " with `make cuda` in its repository, where CUDA's compiler nvcc is installed, and put it next to the "
         "program or name it in " +
         kVariable;
}

// Returns an error with dlopen's message and, for known causes, the remedy.
Error load_failure(const fs::path& path, const std::string& words) {
  const auto lacks = [&](const char* library) { return words.starts_with(library); };
  if (lacks("libcuda.so")) {
    return {ErrorCode::kNotFound,
            "this machine has no NVIDIA driver (" + words + "): install it, or compute with the cpu"};
  }
  if (lacks("libcudart.so") || lacks("libcublas")) {
    return {ErrorCode::kUnsupported,
            "the loader does not find CUDA's libraries (" + words +
                "): install the CUDA runtime and cuBLAS of that version, or name their folder in LD_LIBRARY_PATH"};
  }
  return {ErrorCode::kUnsupported,
          path.string() + " cannot be loaded as winnow's plugin for CUDA (" + words + "): `make cuda` builds it again"};
}

// Returns the plugin of a file, loaded at most once. Throws Error(kNotFound) if there is no driver, Error(kUnsupported)
// otherwise. A plugin stays loaded as long as the process runs, since its objects may outlive any caller.
const Plugin& load(const fs::path& path) {
  static std::mutex mutex;
  static std::vector<std::pair<fs::path, const Plugin*>> loaded;
  const std::lock_guard lock(mutex);
  for (const auto& [file, plugin] : loaded) {
    if (file == path) return *plugin;
  }
  const auto fail = [](const std::string& message) -> Error { return {ErrorCode::kUnsupported, message}; };
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* words = dlerror();
    throw load_failure(path, words == nullptr ? "no reason given" : words);
  }
  // dlsym returns a function's address as an object pointer.
  const auto function = reinterpret_cast<PluginFunction>(dlsym(handle, kPluginFunction));
  const Plugin* const plugin = function == nullptr ? nullptr : function();
  if (plugin == nullptr) {
    dlclose(handle);
    throw fail(path.string() + " is a library, but not winnow's plugin for CUDA: `make cuda` builds that");
  }
  const auto require = [&](const char* what, const char* theirs, const char* ours) {
    if (theirs != nullptr && std::strcmp(theirs, ours) == 0) return;
    const std::string message = path.string() + " was built for " + what + " " +
                                (theirs == nullptr ? "of no version" : theirs) + ", but this program has " + ours +
                                ": build both from the same sources (`make cuda`)";
    dlclose(handle);
    throw fail(message);
  };
  require("winnow", plugin->winnow_version, kVersion);
  require("ggml", plugin->ggml_version, ggml_version());
  require("the interface", plugin->interface, kPluginInterface);
  loaded.emplace_back(path, plugin);
  return *plugin;
}

DeviceInfo cpu_info() {
  return {.id = "cpu", .name = "this machine's processor", .description = "", .bytes_total = memory_total()};
}

}  // namespace

void check_device_name(std::string_view name) { parse_name(name); }

std::vector<DeviceInfo> list_devices(std::string* missing) {
  std::vector<DeviceInfo> devices{cpu_info()};
  std::string reason;
  try {
    if (const std::optional<fs::path> path = find_plugin()) {
      for (DeviceInfo& device : load(*path).list(reason)) devices.push_back(std::move(device));
    } else {
      reason = no_plugin();
    }
  } catch (const Error& error) {
    reason = error.what();
  }
  if (missing != nullptr) *missing = reason;
  return devices;
}

std::shared_ptr<Device> open_device(std::string_view text) {
  const Name name = parse_name(text);
  if (name.kind == Name::Kind::kCpu) return nullptr;
  if (name.kind == Name::Kind::kHost) return open_host_device(name.index);
  const std::optional<fs::path> path = find_plugin();
  if (name.kind == Name::Kind::kCuda) {
    if (!path) throw Error(ErrorCode::kNotFound, no_plugin());
    return load(*path).open(name.index);
  }
  if (!path) return nullptr;
  const Plugin* plugin = nullptr;
  try {
    plugin = &load(*path);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound) return nullptr;
    throw;
  }
  std::string missing;
  return plugin->list(missing).empty() ? nullptr : plugin->open(0);
}

}  // namespace winnow::device
