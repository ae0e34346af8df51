#include "fuzz/shrink.h"

#include <algorithm>
#include <set>

#include "fuzz/draft.h"

namespace ahead::fuzz {
namespace {

using Fails = std::function<bool(const Program&)>;

template <class Change>
void rename_variables(Program& program, Change change) {
  for (Instruction& instruction : program.body) {
    for (Variable& operand : instruction.operands) operand = change(operand);
  }
  for (Variable& result : program.results) result = change(result);
}

bool uses_any(const std::vector<Variable>& variables, Variable first, int count) {
  return std::any_of(variables.begin(), variables.end(),
                     [=](Variable v) { return v >= first && v < first + count; });
}

/// Removes a line; what used its results uses `instead`.
Program without_line(Program program, size_t line, Variable instead) {
  const Variable first = program.first_result(line);
  const int count = program.body[line].num_results;
  program.body.erase(program.body.begin() + static_cast<ptrdiff_t>(line));
  rename_variables(program, [=](Variable variable) {
    if (variable < first) return variable;
    return variable < first + count ? instead : variable - count;
  });
  return program;
}

/// Removes a line and whatever depends on it.
Program without_line_and_users(Program program, size_t line) {
  const Variable first = program.first_result(line);
  const int count = program.body[line].num_results;
  std::erase_if(program.results, [=](Variable v) { return v >= first && v < first + count; });
  for (size_t user = program.body.size() - 1; user > line; --user) {
    if (user < program.body.size() && uses_any(program.body[user].operands, first, count)) {
      program = without_line_and_users(std::move(program), user);
    }
  }
  return without_line(std::move(program), line, 0);
}

Program without_input(Program program, size_t position) {
  program.inputs.erase(program.inputs.begin() + static_cast<ptrdiff_t>(position));
  for (Input& input : program.inputs) {
    if (input.same_as > static_cast<int>(position)) --input.same_as;
    if (input.shares_memory_with > static_cast<int>(position)) --input.shares_memory_with;
    if (input.view_of > static_cast<int>(position)) --input.view_of;
  }
  rename_variables(program, [=](Variable variable) {
    return is_input(variable) && input_position(variable) > position ? variable + 1 : variable;
  });
  return program;
}

bool is_used(const Program& program, size_t position) {
  const Variable variable = input_variable(position);
  const auto uses = [=](const std::vector<Variable>& variables) {
    return std::find(variables.begin(), variables.end(), variable) != variables.end();
  };
  for (const Instruction& instruction : program.body) {
    if (uses(instruction.operands)) return true;
  }
  for (const Input& input : program.inputs) {
    if (input.origin_position() == static_cast<int>(position)) return true;
  }
  return uses(program.results);
}

class Shrinker {
 public:
  Shrinker(Program program, const Fails& fails, int tries)
      : best_(std::move(program)), fails_(fails), tries_(tries) {}

  Program run() {
    bool smaller = true;
    while (smaller && tries_ > 0) {
      smaller = cut_tail();
      smaller |= drop_results();
      smaller |= drop_lines();
      smaller |= simplify_operands();
      smaller |= drop_inputs();
      smaller |= simplify_inputs();
      smaller |= simplify_lines();
      smaller |= shrink_sizes();
    }
    return best_;
  }

 private:
  bool accept(Program candidate) {
    if (tries_-- <= 0 || !fails_(candidate)) return false;
    best_ = std::move(candidate);
    return true;
  }

  bool cut_tail() {
    bool smaller = false;
    for (size_t keep = best_.body.size() / 2; keep + 1 < best_.body.size(); ++keep) {
      Program candidate = best_;
      const Variable end = best_.first_result(keep);
      candidate.body.resize(keep);
      std::erase_if(candidate.results, [=](Variable v) { return v >= end; });
      if (!accept(std::move(candidate))) continue;
      smaller = true;
      keep = best_.body.size() / 2;
    }
    return smaller;
  }

  bool drop_results() {
    bool smaller = false;
    for (size_t i = best_.results.size(); i-- > 0;) {
      Program candidate = best_;
      candidate.results.erase(candidate.results.begin() + static_cast<ptrdiff_t>(i));
      smaller |= accept(std::move(candidate));
    }
    return smaller;
  }

  bool drop_lines() {
    bool smaller = false;
    for (size_t line = best_.body.size(); line-- > 0;) {
      if (line >= best_.body.size()) continue;
      smaller |= accept(without_line_and_users(best_, line)) || bypass_line(line);
    }
    return smaller;
  }

  /// Lets the users of a line take what it takes, or an input.
  bool bypass_line(size_t line) {
    if (best_.body[line].num_results == 0) return false;
    std::vector<Variable> instead = best_.body[line].operands;
    for (size_t i = 0; i < best_.inputs.size(); ++i) instead.push_back(input_variable(i));
    return std::any_of(instead.begin(), instead.end(), [&](Variable variable) {
      return accept(without_line(best_, line, variable));
    });
  }

  /// Lets lines take inputs rather than what was computed.
  bool simplify_operands() {
    bool smaller = false;
    for (size_t line = 0; line < best_.body.size(); ++line) {
      for (size_t operand = 0; operand < best_.body[line].operands.size(); ++operand) {
        if (!is_input(best_.body[line].operands[operand])) smaller |= take_input(line, operand);
      }
    }
    return smaller;
  }

  bool take_input(size_t line, size_t operand) {
    for (size_t i = 0; i < best_.inputs.size(); ++i) {
      Program candidate = best_;
      candidate.body[line].operands[operand] = input_variable(i);
      if (accept(std::move(candidate))) return true;
    }
    return false;
  }

  bool drop_inputs() {
    bool smaller = false;
    for (size_t i = best_.inputs.size(); i-- > 0;) {
      if (!is_used(best_, i)) smaller |= accept(without_input(best_, i));
    }
    return smaller;
  }

  template <class Change>
  bool change_input(size_t position, Change change) {
    Program candidate = best_;
    if (!change(candidate.inputs[position])) return false;
    return accept(std::move(candidate));
  }

  bool simplify_inputs() {
    bool smaller = false;
    for (size_t i = 0; i < best_.inputs.size(); ++i) {
      smaller |= change_input(i, [](Input& input) { return std::exchange(input.captured, false); });
      smaller |= change_input(i, [](Input& input) { return std::exchange(input.wrapper, false); });
      if (!best_.inputs[i].is_own()) continue;
      smaller |= change_input(i, [](Input& input) {
        return std::exchange(input.layout, Layout::Contiguous) != Layout::Contiguous;
      });
      smaller |= change_input(i, [](Input& input) {
        return std::exchange(input.origin, Origin::Leaf) != Origin::Leaf;
      });
      smaller |=
          change_input(i, [](Input& input) { return std::exchange(input.requires_grad, false); });
      smaller |= change_input(i, [](Input& input) {
        return at::isFloatingType(input.dtype) &&
               std::exchange(input.dtype, at::kFloat) != at::kFloat;
      });
      while (change_input(i, [](Input& input) {
        if (input.sizes.empty()) return false;
        input.sizes.erase(input.sizes.begin());
        return true;
      })) {
        smaller = true;
      }
    }
    return smaller;
  }

  bool simplify_lines() {
    bool smaller = false;
    if (best_.no_grad) {
      Program candidate = best_;
      candidate.no_grad = false;
      smaller |= accept(std::move(candidate));
    }
    for (size_t i = 0; i < best_.body.size(); ++i) {
      if (!best_.body[i].no_grad) continue;
      Program candidate = best_;
      candidate.body[i].no_grad = false;
      smaller |= accept(std::move(candidate));
    }
    for (size_t i = 0; i < best_.body.size(); ++i) {
      if (!best_.body[i].autocast) continue;
      Program candidate = best_;
      candidate.body[i].autocast = false;
      smaller |= accept(std::move(candidate));
    }
    return smaller;
  }

  /// Replaces a size wherever it occurs, since shapes and arguments go together.
  bool shrink_sizes() {
    std::set<int64_t> sizes;
    for (const Input& input : best_.inputs) sizes.insert(input.sizes.begin(), input.sizes.end());
    bool smaller = false;
    for (int64_t size : sizes) {
      for (int64_t other : {1, 2}) {
        if (size <= other) continue;
        Program candidate = best_;
        const auto replace = [=](Ints& values) {
          std::replace(values.begin(), values.end(), size, other);
        };
        for (Input& input : candidate.inputs) replace(input.sizes);
        Program inputs_only = candidate;
        for (Instruction& line : candidate.body) {
          replace(line.n);
          replace(line.dims);
        }
        if (accept(std::move(candidate)) || accept(std::move(inputs_only))) {
          smaller = true;
          break;
        }
      }
    }
    return smaller;
  }

  Program best_;
  const Fails& fails_;
  int tries_;
};

}  // namespace

Program shrink(Program program, const Fails& fails, int tries) {
  return Shrinker(std::move(program), fails, tries).run();
}

}  // namespace ahead::fuzz
