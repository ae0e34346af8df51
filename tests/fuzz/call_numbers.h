#pragma once

#include <optional>
#include <string>

#include "fuzz/program.h"

namespace ahead::fuzz {

/// What may be another number in each call of a program. In the program itself, these values stand
/// for them, and multiples of the integers for multiples: nothing else in it has these values.
struct CallNumbers {
  int64_t batch = 7;  ///< a size of arguments
  int64_t count = 11;
  double rate = 0.3125;
};

/// The same program for a call with these numbers.
Program in_call(const Program& program, const CallNumbers& numbers);
/// Whether it has the batch, or the count, in it.
bool depends_on_call(const std::vector<int64_t>& sizes);

/// Where a program reads the size of its batch.
struct BatchPlace {
  size_t input, dim;
};
/// None: no argument has it.
std::optional<BatchPlace> batch_place(const Program& program);

/// A number as the text of programs has it.
std::string name_in_call(int64_t value);
std::string name_in_call(const Number& value);

}  // namespace ahead::fuzz
