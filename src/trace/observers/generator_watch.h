#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trace/graph_writer.h"
#include "trace/observers/generator_position.h"

namespace ahead::tracing {

/// Notices that a function being traced sets the state of a generator of random numbers. A state
/// that a default generator had before, in this function, is one that the graph can set, too;
/// others, and seeds, are refused.
///
/// A trace draws no numbers. So that a state which is saved and set again is another one once the
/// function has drawn, each traced operator that draws advances the generator a little. What was
/// done to generators is undone at the end, unless other threads have drawn from them meanwhile.
class GeneratorWatch {
 public:
  explicit GeneratorWatch(GraphWriter& writer) : writer_(writer) {}
  ~GeneratorWatch() { abandon(); }
  GeneratorWatch(const GeneratorWatch&) = delete;
  GeneratorWatch& operator=(const GeneratorWatch&) = delete;

  /// Watches the default generators from now on, others once something is drawn from them. Those
  /// of CUDA are not watched while a CUDA graph is captured: they do not answer then.
  void start();
  /// Throws Unsupported if a generator was set since the last draw to a state that is not known;
  /// else ends the watch.
  void finish();
  /// The same check; what the function draws from here on belongs to its backward, which begins
  /// with the state that the generators have by then.
  void begin_backward();
  /// Ends the watch, if there is one, without looking whether generators were set.
  void abandon();

  /// An operator that draws from a generator, or from the default one of its device, is traced.
  /// Throws Unsupported if somebody set it.
  void note_draw(const at::Generator& generator, at::Device device);
  /// The operator that draws is this node of the graph.
  void note_node(Node& node);
  /// Says that the function, when it was observed, had the default generator of a device here in
  /// its run, or set it to where it had been before.
  void pass(at::Device device, uint64_t fingerprint);
  void go_back(at::Device device, uint64_t fingerprint);
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
  /// A place in the graph, and where the default generator of a device stands there.
  struct Known {
    at::Device device;
    uint64_t fingerprint;
    Node* after;  ///< the last node before it; null: there is none
    Phase phase;
    Value *seed = nullptr, *offset = nullptr;  ///< once they are needed
  };
  static void check(const Watched& watched);
  void settle(Watched& watched);
  static bool is_default(const at::Generator& generator);
  void add_known(at::Device device, uint64_t fingerprint);
  Known* find_known(at::Device device, uint64_t fingerprint);
  void read_state(Known& known);
  void set_state(Known& known);
  void advance(Watched& watched);
  /// Nothing for a generator that does not answer.
  Watched* find(const at::Generator& generator);

  GraphWriter& writer_;
  bool is_watching_ = false;
  std::vector<Watched> watched_;
  std::vector<Known> known_;
  bool is_new_drawn_ = false;  ///< the last of these waits for its node
};

}  // namespace ahead::tracing
