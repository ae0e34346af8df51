#include "trace/observers/generator_watch.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "ahead/errors.h"
#include "base/generators.h"
#include "random/generator_state.h"

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
    if (const Watched* watched = find(generator))
      add_known(generator.device(), watched->left.fingerprint());
  }
}

void GeneratorWatch::finish() {
  for (Watched& watched : watched_) {
    const std::lock_guard<std::mutex> lock(watched.generator.mutex());
    settle(watched);
  }
  abandon();
}

void GeneratorWatch::begin_backward() {
  if (!is_watching_) return;
  for (Watched& watched : watched_) {
    const std::lock_guard<std::mutex> lock(watched.generator.mutex());
    settle(watched);
    if (!is_default(watched.generator)) continue;
    // So that it is told from the state at the end of the forward, which may be set here.
    if (watched.is_advanced) advance(watched);
    add_known(watched.generator.device(), watched.left.fingerprint());
    known_.back().phase = Phase::Backward;
  }
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
  known_.clear();
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
  settle(*watched);
  // Not earlier: a state is a tensor with data, which traces of most functions do without.
  if (!watched->is_advanced) watched->before = generator.get_state();
  advance(*watched);
  is_new_drawn_ = is_default(generator);
  if (is_new_drawn_) add_known(generator.device(), watched->left.fingerprint());
}

void GeneratorWatch::note_node(Node& node) {
  if (std::exchange(is_new_drawn_, false)) known_.back().after = &node;
}

/// Follows what was done to a generator since the last look. Throws if no graph could.
void GeneratorWatch::settle(Watched& watched) {
  if (watched.is_as_left()) return;
  const uint64_t now = GeneratorPosition(watched.generator).fingerprint();
  Known* known =
      is_default(watched.generator) ? find_known(watched.generator.device(), now) : nullptr;
  if (known == nullptr) {
    check(watched);
    watched.is_shared = true;
    return;
  }
  if (!watched.is_advanced) {
    // Somebody went back before anything was drawn in the trace; the end of it undoes that.
    at::Generator left = watched.generator.clone();
    watched.left.restore(left);
    watched.before = left.get_state();
    watched.is_advanced = true;
  }
  set_state(*known);
  watched.leave();
}

bool GeneratorWatch::is_default(const at::Generator& generator) {
  if (generator.device().is_cpu()) return generator == at::detail::getDefaultCPUGenerator();
  return generator.device().is_cuda() && at::globalContext().hasCUDA() &&
         generator == at::globalContext().defaultGenerator(generator.device());
}

/// Advances a generator to where it has not been yet.
void GeneratorWatch::advance(Watched& watched) {
  do {
    GeneratorPosition::advance(watched.generator);
    watched.leave();
  } while (find_known(watched.generator.device(), watched.left.fingerprint()) != nullptr);
  watched.is_advanced = true;
}

void GeneratorWatch::add_known(at::Device device, uint64_t fingerprint) {
  known_.push_back({device, fingerprint, writer_.graph().last(), writer_.phase()});
}

GeneratorWatch::Known* GeneratorWatch::find_known(at::Device device, uint64_t fingerprint) {
  const auto found = std::find_if(known_.rbegin(), known_.rend(), [&](const Known& known) {
    return known.device == device && known.fingerprint == fingerprint;
  });
  return found == known_.rend() ? nullptr : &*found;
}

/// Lets the graph read the state where the generator had it.
void GeneratorWatch::read_state(Known& known) {
  if (known.seed != nullptr) return;
  Graph& graph = writer_.graph();
  Node* next = known.after == nullptr ? graph.first() : known.after->next();
  Node* read = graph.add_node(generator_state_operator(), {c10::IValue(known.device)}, next);
  read->phase = known.phase;
  read->set(Tag::Random);
  known.seed = graph.add_return(read, GeneratorState::seed_meta());
  known.offset = graph.add_return(read, GeneratorState::offset_meta(known.device));
}

void GeneratorWatch::set_state(Known& known) {
  read_state(known);
  Node* set = writer_.record(set_generator_state_operator(),
                             {known.seed, known.offset, c10::IValue(known.device)});
  set->set(Tag::Random);
  set->set(Tag::Effect);
}

void GeneratorWatch::pass(at::Device device, uint64_t fingerprint) {
  if (is_watching_) add_known(device, fingerprint);
}

void GeneratorWatch::go_back(at::Device device, uint64_t fingerprint) {
  Known* known = find_known(device, fingerprint);
  if (known == nullptr)
    throw InternalError("trace", "a generator goes back to where it never was.");
  set_state(*known);
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
                    "sets a state that a default generator did not have before in the function. "
                    "Do it outside; to compute something again in the backward, use "
                    "ahead::checkpoint.");
}

void GeneratorWatch::note_restored() {
  restored_count.fetch_add(1);
}

}  // namespace ahead::tracing
