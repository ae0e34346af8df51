#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "compile/entry.h"

namespace ahead::detail {

/// Whether all that a program would be given as state was there to trace it with.
bool is_traceable(const observe::Tape& tape);
/// What a call stored, in the order of the program's results.
std::vector<StateTensor> states_of(const observe::Tape& tape);
/// What a program is given besides the arguments of the call, in order.
std::vector<StateArgument> state_arguments_of(const observe::Tape& tape);

/// What one run of a program finds in the user's objects, and leaves there.
class StateRun {
 public:
  /// None: something that the program needs is gone.
  static std::optional<StateRun> begin(const Entry& entry, const Situation& now);

  /// What the program is given: the arguments of the call, then what calls before stored.
  const std::vector<at::Tensor>& arguments() const { return arguments_; }
  /// Takes what the program stores, which comes after its results, and puts it where the function
  /// itself would have. The numbers that it took from the host have been used.
  void store(std::vector<at::Tensor>& results);

 private:
  StateRun(std::shared_ptr<const Entry::Seen> seen, const HostParts& host,
           std::vector<at::Tensor> arguments)
      : seen_(std::move(seen)), host_(host), arguments_(std::move(arguments)) {}

  std::shared_ptr<const Entry::Seen> seen_;
  HostParts host_;
  std::vector<at::Tensor> arguments_;
  /// Of each tensor that is stored it is not known where: the one that it takes the place of.
  std::vector<at::Tensor> objects_;
  std::vector<std::shared_ptr<HostState>> hosts_;
};

}  // namespace ahead::detail
