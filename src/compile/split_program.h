#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "compile/pipeline.h"
#include "observe/tape/parts.h"

namespace ahead::compiling {

/// A recorded function as several programs, one after the other, with the hooks between them that
/// the function registers: these belong to real tensors, and are called when a gradient comes.
class SplitProgram {
 public:
  /// Throws Unsupported if the recording cannot be divided where its hooks are.
  explicit SplitProgram(std::shared_ptr<const observe::Tape> tape);

  /// Whether it is more than one program.
  bool is_divided() const { return is_divided_; }
  /// Gives it the program of the whole recording, which it runs if it is not divided.
  void use(const Compilation& whole);

  /// Compiles a part. `may_wait`: if there is no program for many sizes yet, the part is only
  /// remembered, to be compared with others.
  using Compile = std::function<Compilation(const aot::FlatFunction&,
                                            const std::vector<at::Tensor>&, bool may_wait)>;
  /// Runs a call: returns the function's results, and then the tensors that it stored. A part is
  /// compiled when it is run for the first time, or the second time if that waits, for the inputs
  /// of that run; until then, or if it cannot be, its operators are called one by one. None, and
  /// nothing is done, if a tensor with hooks is gone.
  std::optional<std::vector<at::Tensor>> run(const std::vector<at::Tensor>& arguments,
                                             const Compile& compile);

  /// The stages of all parts that are compiled.
  std::vector<Program> programs() const;
  /// The backwards of all parts.
  size_t num_backwards() const;

 private:
  /// What runs a part.
  struct Runner {
    Compilation compiled;  ///< has no plan if the part cannot be compiled
    aot::FlatFunction one_by_one;
  };
  struct Piece {
    explicit Piece(observe::Part p) : part(std::move(p)) {}
    const observe::Part part;
    std::atomic<std::shared_ptr<const Runner>> runner{};
    std::atomic<bool> has_waited{false};
  };
  class Run;

  std::shared_ptr<const Runner> runner_of(Piece& piece, const std::vector<at::Tensor>& inputs,
                                          const Compile& compile) const;

  const std::shared_ptr<const observe::Tape> tape_;
  const observe::Part whole_;
  bool is_divided_ = false;
  std::deque<Piece> pieces_;
};

}  // namespace ahead::compiling
