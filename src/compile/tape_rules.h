#pragma once

#include <string>
#include <vector>

#include "observe/tape/tape.h"
#include "runtime/call/call_plan.h"

/// What a recording says about the programs that can be made of it.
namespace ahead::detail {

bool reads_values(const observe::Tape& tape);
/// Whether the code gave leaves gradients, took them away, or used them.
bool touches_grads(const observe::Tape& tape);
/// Leaves whose gradient the code takes away before it uses the leaf, and the program is not given.
std::vector<observe::WeakTensor> leaves_without_grads(const observe::Tape& tape,
                                                      const runtime::CallPlan& plan);
/// Why what a call stored cannot be had from a graph, or not be put where the user has it; empty:
/// it can.
std::string why_not_storable(const observe::Tape& tape);
/// A tape says all about the next call only if nothing in it began with this one.
bool is_self_contained(const observe::Tape& tape);

/// Throws Unsupported for a tensor whose history grows with every call, captured or passed again:
/// it has the nodes of all of them in it, which a backward of other results releases. `before` is
/// the recording of the call before, if there was one.
void check_histories(const runtime::CallPlan& plan, const std::vector<at::Tensor>& arguments,
                     const observe::Tape* before);

/// What is said of a function that does something else in calls that look alike.
std::string in_words(const observe::TapeDifference& found);

}  // namespace ahead::detail
