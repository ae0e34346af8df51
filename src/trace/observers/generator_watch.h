#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trace/observers/generator_position.h"

namespace ahead::tracing {

/// Notices that a function being traced seeds a generator of random numbers or sets its state,
/// which no graph can repeat.
///
/// A trace draws no numbers. So that a state which is saved and set again is another one once the
/// function has drawn, each traced operator that draws advances the generator a little. What was
/// done to generators is undone at the end, unless other threads have drawn from them meanwhile.
class GeneratorWatch {
 public:
  GeneratorWatch() = default;
  ~GeneratorWatch() { abandon(); }
  GeneratorWatch(const GeneratorWatch&) = delete;
  GeneratorWatch& operator=(const GeneratorWatch&) = delete;

  /// Watches the default generators from now on, others once something is drawn from them. Those
  /// of CUDA are not watched while a CUDA graph is captured: they do not answer then.
  void start();
  /// Throws Unsupported if a generator was set since the last draw; else ends the watch.
  void finish();
  /// Ends the watch, if there is one, without looking whether generators were set.
  void abandon();

  /// An operator that draws from a generator, or from the default one of its device, is traced.
  /// Throws Unsupported if somebody set it.
  void note_draw(const at::Generator& generator, at::Device device);
  /// Throws Unsupported if a tensor from outside is the state of a watched generator, which will be
  /// another one in the next call.
  void refuse_state(const at::Tensor& tensor) const;
  /// Says that a generator is given back a state on purpose, for the watches of other threads.
  static void note_restored();

 private:
  struct Watched {
    explicit Watched(at::Generator generator);
    /// Whether only drawing has led from the state it was left in to the one it has now.
    bool is_only_drawn_from() const;
    bool is_as_left() const;
    void leave();

    at::Generator generator;
    at::Tensor before;
    GeneratorPosition left;    ///< as the watch left it
    uint64_t restored;         ///< how often generators had been restored then
    bool is_advanced = false;  ///< by the watch
    bool is_shared = false;    ///< others have drawn from it
  };
  static void check(const Watched& watched);
  /// Nothing for a generator that does not answer.
  Watched* find(const at::Generator& generator);

  bool is_watching_ = false;
  std::vector<Watched> watched_;
};

}  // namespace ahead::tracing
