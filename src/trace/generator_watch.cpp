#include "trace/generator_watch.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "ahead/errors.h"

namespace ahead::tracing {
namespace {

std::atomic<uint64_t> restored_count{0};

/// How many numbers other threads may draw between two looks at a generator.
constexpr int64_t most_drawn_elsewhere = 1 << 24;

at::CPUGeneratorImpl& impl_of(const at::Generator& generator) {
  return *generator.get<at::CPUGeneratorImpl>();
}

/// Whether drawing from the one leads to the other.
bool leads_to(at::mt19937 from, const at::mt19937& to) {
  const at::mt19937_data_pod wanted = to.data();
  for (int64_t drawn = 0; drawn < most_drawn_elsewhere;) {
    const at::mt19937_data_pod now = from.data();
    if (now.seed_ != wanted.seed_) return false;
    if (now.state_ == wanted.state_) return now.next_ <= wanted.next_;
    // Its numbers are made in batches; this many are left of this one, and one begins the next.
    for (int i = 0; i < now.left_; ++i) from();
    drawn += now.left_;
  }
  return false;
}

}  // namespace

GeneratorWatch::Watched::Watched(at::Generator of) : generator(std::move(of)) {
  leave();
}

bool GeneratorWatch::Watched::is_as_left() const {
  const at::mt19937_data_pod now = impl_of(generator).engine().data(), then = left.data();
  return now.seed_ == then.seed_ && now.next_ == then.next_ && now.state_ == then.state_;
}

bool GeneratorWatch::Watched::is_only_drawn_from() const {
  return restored != restored_count.load() || leads_to(left, impl_of(generator).engine());
}

void GeneratorWatch::Watched::leave() {
  left = impl_of(generator).engine();
  restored = restored_count.load();
}

GeneratorWatch::GeneratorWatch() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  watched_.emplace_back(generator);
}

GeneratorWatch::~GeneratorWatch() {
  for (Watched& watched : watched_) {
    const std::lock_guard<std::mutex> lock(watched.generator.mutex());
    const bool is_as_left = watched.is_as_left();
    if (watched.is_shared || (is_as_left && !watched.is_advanced)) continue;
    if (!is_as_left && watched.is_only_drawn_from()) continue;
    note_restored();
    if (watched.is_advanced) {
      watched.generator.set_state(watched.before);
    } else {
      impl_of(watched.generator).set_engine(watched.left);
    }
  }
}

void GeneratorWatch::note_draw(const at::Generator& drawn_from) {
  at::Generator generator =
      drawn_from.defined() ? drawn_from : at::detail::getDefaultCPUGenerator();
  if (generator.device().type() != at::kCPU) return;
  const std::lock_guard<std::mutex> lock(generator.mutex());
  auto found = std::find_if(watched_.begin(), watched_.end(),
                            [&](const Watched& watched) { return watched.generator == generator; });
  if (found == watched_.end()) found = watched_.emplace(watched_.end(), generator);
  check(*found);
  found->is_shared = found->is_shared || !found->is_as_left();
  // Not earlier: a state is a tensor with data, which traces of most functions do without.
  if (!found->is_advanced) found->before = generator.get_state();
  impl_of(generator).random();
  found->is_advanced = true;
  found->leave();
}

void GeneratorWatch::check() const {
  for (const Watched& watched : watched_) {
    at::Generator generator = watched.generator;
    const std::lock_guard<std::mutex> lock(generator.mutex());
    check(watched);
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
