#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/MT19937RNGEngine.h>

#include <cstdint>
#include <optional>

namespace ahead::tracing {

/// Where in its sequence of numbers a generator stands. Callers hold the generator's mutex.
class GeneratorPosition {
 public:
  /// Where the generator stands now.
  explicit GeneratorPosition(const at::Generator& generator);

  bool operator==(const GeneratorPosition& other) const;
  /// Equal for equal positions, and else another one as good as always.
  uint64_t fingerprint() const;
  /// Whether drawing from a generator that stands here can lead to the other position.
  bool leads_to(const GeneratorPosition& other) const;
  /// Puts a generator back here.
  void restore(at::Generator generator) const;
  /// Draws a little from a generator.
  static void advance(at::Generator generator);
  /// The fingerprint that a generator of this kind has in a state, as get_state() gives it; nothing
  /// for tensors that are none.
  static std::optional<uint64_t> fingerprint_of(const at::Tensor& state,
                                                const at::Generator& generator);

 private:
  at::mt19937 engine_;  ///< of CPU generators
  uint64_t seed_ = 0;   ///< of other generators, as is `offset_`
  uint64_t offset_ = 0;
};

}  // namespace ahead::tracing
