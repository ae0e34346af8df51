#include "compile/module_watch.h"

#include <torch/csrc/api/include/torch/nn/modules/dropout.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <typeindex>

namespace ahead::compiling {
namespace {

template <class... Modules>
const double* probability_of(torch::nn::Module& module) {
  const double* found = nullptr;
  const auto look = [&](auto* dropout) {
    if (dropout != nullptr) found = &dropout->options.p();
  };
  (look(module.as<Modules>()), ...);
  return found;
}

/// The classes of modules that announced members, and how to find these.
struct Announcements {
  struct Class {
    std::type_index type;
    detail::FindMembers find;
  };
  std::mutex mutex;
  std::vector<Class> classes;

  /// Never destroyed: modules may be compiled while the process ends.
  static Announcements& all() {
    static auto* const announcements = new Announcements;
    return *announcements;
  }
};

uint64_t reading_of(const detail::AnnouncedMember& number) {
  uint64_t bits = 0;
  std::memcpy(&bits, number.address, std::min(number.size, sizeof(bits)));
  return bits;
}

}  // namespace

void ModuleWatch::add(const std::shared_ptr<torch::nn::Module>& module,
                      const torch::nn::Module* callable) {
  for (auto& part : module->modules()) {
    Watched watched{part, {}};
    const double* probability =
        probability_of<torch::nn::DropoutImpl, torch::nn::Dropout2dImpl, torch::nn::Dropout3dImpl,
                       torch::nn::AlphaDropoutImpl, torch::nn::FeatureAlphaDropoutImpl>(*part);
    if (probability != nullptr) watched.numbers.push_back({probability, sizeof(*probability)});
    Announcements& announcements = Announcements::all();
    std::lock_guard<std::mutex> lock(announcements.mutex);
    for (const Announcements::Class& each : announcements.classes)
      each.find(*part, watched.numbers);
    std::erase_if(watched.numbers, [&](const detail::AnnouncedMember& member) {
      if (member.has_tensor && part.get() != callable)
        tensors_.push_back({static_cast<const std::byte*>(member.address), member.size});
      return member.has_tensor;
    });
    modules_.push_back(std::move(watched));
  }
}

ModuleWatch::Readings ModuleWatch::read() const {
  Readings readings;
  readings.reserve(modules_.size());
  for (const Watched& watched : modules_) {
    readings.push_back(watched.module->is_training() ? 1 : 0);
    for (const detail::AnnouncedMember& number : watched.numbers)
      readings.push_back(reading_of(number));
  }
  return readings;
}

bool ModuleWatch::holds(const Readings& before) const {
  size_t next = 0;
  for (const Watched& watched : modules_) {
    if (before[next++] != (watched.module->is_training() ? 1U : 0U)) return false;
    for (const detail::AnnouncedMember& number : watched.numbers) {
      if (before[next++] != reading_of(number)) return false;
    }
  }
  return true;
}

}  // namespace ahead::compiling

namespace ahead::detail {

bool announce_state(const std::type_info& type, FindMembers find) {
  auto& announcements = compiling::Announcements::all();
  std::lock_guard<std::mutex> lock(announcements.mutex);
  // A header that announces a class is part of several files.
  for (const auto& known : announcements.classes) {
    if (known.type == std::type_index(type)) return true;
  }
  announcements.classes.push_back({type, std::move(find)});
  return true;
}

}  // namespace ahead::detail
