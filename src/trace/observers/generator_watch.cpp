#include "trace/observers/generator_watch.h"

#include <ATen/Context.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "ahead/errors.h"
#include "base/generators.h"

namespace ahead::tracing {
namespace {

std::atomic<uint64_t> restored_count{0};

/// Whether a tensor is a state that the generator has or, if it is one of the CPU, has had since it
/// was seeded: these begin with the seed and are too long to be anything else.
bool is_state_of(const at::Generator& generator, const at::Tensor& tensor) {
  const at::Tensor state = generator.get_state();
  if (state.numel() != tensor.numel()) return false;
  const bool is_long = generator.device().is_cpu();
  const size_t size = is_long ? sizeof(uint64_t) : state.nbytes();
  return std::memcmp(state.const_data_ptr(), tensor.const_data_ptr(), size) == 0;
}

}  // namespace

GeneratorWatch::Watched::Watched(at::Generator of)
    : generator(std::move(of)), left(generator), restored(restored_count.load()) {}

bool GeneratorWatch::Watched::is_as_left() const {
  return GeneratorPosition(generator) == left;
}

bool GeneratorWatch::Watched::is_only_drawn_from() const {
  return restored != restored_count.load() || left.leads_to(GeneratorPosition(generator));
}

void GeneratorWatch::Watched::leave() {
  left = GeneratorPosition(generator);
  restored = restored_count.load();
}

void GeneratorWatch::start() {
  is_watching_ = true;
  for (const at::Generator& generator : default_generators()) {
    at::Generator locked = generator;
    const std::lock_guard<std::mutex> lock(locked.mutex());
    find(generator);
  }
}

void GeneratorWatch::finish() {
  for (const Watched& watched : watched_) {
    at::Generator generator = watched.generator;
    const std::lock_guard<std::mutex> lock(generator.mutex());
    check(watched);
  }
  abandon();
}

void GeneratorWatch::abandon() {
  is_watching_ = false;
  for (Watched& watched : watched_) {
    const std::lock_guard<std::mutex> lock(watched.generator.mutex());
    const bool is_as_left = watched.is_as_left();
    if (watched.is_shared || (is_as_left && !watched.is_advanced)) continue;
    if (!is_as_left && watched.is_only_drawn_from()) continue;
    note_restored();
    if (watched.is_advanced) {
      watched.generator.set_state(watched.before);
    } else {
      watched.left.restore(watched.generator);
    }
  }
  watched_.clear();
}

GeneratorWatch::Watched* GeneratorWatch::find(const at::Generator& generator) {
  const auto found = std::find_if(watched_.begin(), watched_.end(), [&](const Watched& watched) {
    return watched.generator == generator;
  });
  if (found != watched_.end()) return &*found;
  try {
    return &watched_.emplace_back(generator);
  } catch (const c10::Error&) {
    return nullptr;
  }
}

void GeneratorWatch::note_draw(const at::Generator& drawn_from, at::Device device) {
  if (!is_watching_) return;
  if (device.type() != at::kCPU && device.type() != at::kCUDA) return;
  at::Generator generator =
      drawn_from.defined() ? drawn_from : at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  Watched* watched = find(generator);
  if (watched == nullptr) return;
  check(*watched);
  watched->is_shared = watched->is_shared || !watched->is_as_left();
  // Not earlier: a state is a tensor with data, which traces of most functions do without.
  if (!watched->is_advanced) watched->before = generator.get_state();
  GeneratorPosition::advance(generator);
  watched->is_advanced = true;
  watched->leave();
}

void GeneratorWatch::refuse_state(const at::Tensor& tensor) const {
  if (!is_watching_) return;
  if (tensor.scalar_type() != at::kByte || tensor.dim() != 1 || !tensor.is_cpu() ||
      !tensor.is_contiguous() || tensor.numel() == 0) {
    return;
  }
  for (const Watched& watched : watched_) {
    at::Generator generator = watched.generator;
    const std::lock_guard<std::mutex> lock(generator.mutex());
    if (!is_state_of(generator, tensor)) continue;
    throw Unsupported("trace",
                      "get_state: the function uses the state of a generator of random numbers, "
                      "which is another one in every call. Read it outside.");
  }
}

void GeneratorWatch::check(const Watched& watched) {
  if (watched.is_as_left() || watched.is_only_drawn_from()) return;
  throw Unsupported("trace",
                    "manual_seed, set_state: the function seeds a generator of random numbers, or "
                    "sets its state. Do it outside; to compute something again in the backward, "
                    "use ahead::checkpoint.");
}

void GeneratorWatch::note_restored() {
  restored_count.fetch_add(1);
}

}  // namespace ahead::tracing
