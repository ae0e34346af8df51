#include "trace/observers/generator_position.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

#include "base/hash.h"

namespace ahead::tracing {
namespace {

/// How many numbers other threads may draw between two looks at a generator.
constexpr int64_t most_drawn_elsewhere = 1 << 24;

/// By how much CUDA's generators count at least.
constexpr uint64_t step = 4;

at::CPUGeneratorImpl* cpu_impl(const at::Generator& generator) {
  return generator.device().is_cpu() ? generator.get<at::CPUGeneratorImpl>() : nullptr;
}

at::mt19937 engine_of(const at::Generator& generator) {
  // Seeding a new one takes thousands of instructions.
  static const at::mt19937 none;
  at::CPUGeneratorImpl* cpu = cpu_impl(generator);
  return cpu == nullptr ? none : cpu->engine();
}

bool engine_leads_to(at::mt19937 from, const at::mt19937& to) {
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

GeneratorPosition::GeneratorPosition(const at::Generator& generator)
    : engine_(engine_of(generator)) {
  if (generator.device().is_cpu()) return;
  seed_ = generator.current_seed();
  offset_ = generator.get_offset();
}

bool GeneratorPosition::operator==(const GeneratorPosition& other) const {
  const at::mt19937_data_pod a = engine_.data(), b = other.engine_.data();
  return a.seed_ == b.seed_ && a.next_ == b.next_ && a.state_ == b.state_ && seed_ == other.seed_ &&
         offset_ == other.offset_;
}

uint64_t GeneratorPosition::fingerprint() const {
  const at::mt19937_data_pod engine = engine_.data();
  uint64_t hash = hash_combine(hash_combine(seed_, offset_), engine.seed_);
  hash = hash_combine(hash, engine.next_);
  // The rest of a batch of numbers follows from these, but for one in 2^128.
  for (size_t i = 0; i < 4; ++i) hash = hash_combine(hash, engine.state_[i]);
  return hash;
}

std::optional<uint64_t> GeneratorPosition::fingerprint_of(const at::Tensor& state,
                                                          const at::Generator& generator) {
  if (state.scalar_type() != at::kByte || state.dim() != 1 || !state.is_cpu() ||
      !state.has_storage() || !state.is_contiguous())
    return std::nullopt;
  at::Generator other = generator;
  {
    const std::lock_guard<std::mutex> lock(other.mutex());
    if (other.get_state().numel() != state.numel()) return std::nullopt;
    other = other.clone();
  }
  try {
    other.set_state(state);
  } catch (const c10::Error&) {
    return std::nullopt;  // other bytes of the same number
  }
  return GeneratorPosition(other).fingerprint();
}

bool GeneratorPosition::leads_to(const GeneratorPosition& other) const {
  return seed_ == other.seed_ && offset_ <= other.offset_ &&
         engine_leads_to(engine_, other.engine_);
}

void GeneratorPosition::restore(at::Generator generator) const {
  if (at::CPUGeneratorImpl* cpu = cpu_impl(generator)) {
    cpu->set_engine(engine_);
  } else {
    generator.set_current_seed(seed_);
    generator.set_offset(offset_);
  }
}

void GeneratorPosition::advance(at::Generator generator) {
  if (at::CPUGeneratorImpl* cpu = cpu_impl(generator)) {
    cpu->random();
  } else {
    generator.set_offset(generator.get_offset() + step);
  }
}

}  // namespace ahead::tracing
