#include "ops/input.h"

namespace ahead::samples {
namespace {

Input restrict(const Input& input, Domain domain) {
  switch (domain) {
    case Domain::Any:
      return input;
    case Domain::Positive:
      return input.positive();
    case Domain::Unit:
      return input.range(0, 1);
    case Domain::AboveOne:
      return input.range(1, 5);
  }
  return input;
}

}  // namespace

std::vector<Inputs> unary_inputs(Dtypes dtypes, Domain domain) {
  std::vector<Inputs> sets;
  const auto add = [&](const Input& input) { sets.push_back({restrict(input, domain)}); };
  const std::vector<at::ScalarType> list = dtypes.list();
  const at::ScalarType first = list.front();
  add(tensor(first, 7));
  add(tensor(first, 2, 3));
  add(tensor(first, 2, 3).offset());
  add(tensor(first, 4, 3).transposed());
  add(tensor(first, 3, 4).strided());
  add(tensor(first, 3, 2).expanded());
  add(tensor(first, 3, 2).expanded(1));
  add(tensor(first, 2, 3, 4).permuted());
  add(tensor(first, 2, 3, 2, 2).channels_last());
  add(tensor(first, 1, 2, 2, 1, 2).channels_last());
  for (at::ScalarType dtype : list) {
    add(tensor(dtype));
    add(tensor(dtype, 0));
    add(tensor(dtype, 2, 0, 3));
    if (dtype != first) {
      add(tensor(dtype, 3, 5));
      add(tensor(dtype, 3, 4).transposed());
    }
    // Restricting the values would overwrite the special ones.
    if (domain == Domain::Any && dtype != at::kBool)
      sets.push_back({tensor(dtype, 4, 5).specials()});
  }
  return sets;
}

std::vector<Inputs> writable_inputs(Dtypes dtypes, Domain domain) {
  const std::vector<at::ScalarType> list = dtypes.list();
  std::vector<Inputs> sets;
  for (at::ScalarType dtype : list) sets.push_back({restrict(tensor(dtype, 3, 2), domain)});
  sets.push_back({restrict(tensor(list.front()), domain)});
  sets.push_back({restrict(tensor(list.front(), 2, 4).transposed(), domain)});
  sets.push_back({restrict(tensor(list.front(), 3, 2).strided(), domain)});
  return sets;
}

std::vector<Inputs> writable_binary_inputs(Dtypes dtypes, Domain domain, Mixing mixing) {
  const std::vector<at::ScalarType> list = dtypes.list();
  const at::ScalarType first = list.front();
  std::vector<Inputs> sets;
  const auto add = [&](const Input& a, const Input& b) {
    sets.push_back({restrict(a, domain), restrict(b, domain)});
  };
  // Sixteen elements: eager's complex division rounds the rest of a vector differently in place.
  for (at::ScalarType dtype : list) add(tensor(dtype, 2, 8), tensor(dtype, 2, 8));
  add(tensor(first, 2, 4).transposed(), tensor(first, 4));
  add(tensor(first, 3, 2).strided(), tensor(first, 3, 1));
  add(tensor(first, 2, 3), tensor(first));
  if (domain == Domain::Any && mixing == Mixing::Types)
    sets.push_back({tensor(first, 2, 3), number(2)});
  return sets;
}

std::vector<Inputs> binary_inputs(Dtypes dtypes, Domain domain, Mixing mixing) {
  std::vector<Inputs> sets;
  const auto add = [&](const Input& a, const Input& b) {
    sets.push_back({restrict(a, domain), restrict(b, domain)});
  };
  const std::vector<at::ScalarType> list = dtypes.list();
  const at::ScalarType first = list.front();
  add(tensor(first, 2, 3), tensor(first, 2, 3));
  add(tensor(first, 2, 3), tensor(first, 3));
  add(tensor(first, 1, 3), tensor(first, 2, 1));
  add(tensor(first, 2, 1, 3), tensor(first, 4, 1));
  add(tensor(first, 2, 3), tensor(first));
  add(tensor(first), tensor(first, 2, 3));
  add(tensor(first), tensor(first));
  add(tensor(first, 0), tensor(first, 1));
  add(tensor(first, 2, 0), tensor(first, 2, 0));
  add(tensor(first, 3, 4).transposed(), tensor(first, 3, 4).transposed());
  add(tensor(first, 3, 4).transposed(), tensor(first, 3, 4));
  add(tensor(first, 3, 4), tensor(first, 3, 4).transposed());
  add(tensor(first, 3, 4).strided(), tensor(first, 4).offset());
  add(tensor(first, 3, 4).expanded(), tensor(first, 3, 4).expanded());
  add(tensor(first, 2, 3, 4).permuted(), tensor(first, 2, 1, 4));
  add(tensor(first, 2, 3, 2, 2).channels_last(), tensor(first, 2, 3, 2, 2));
  add(tensor(first, 2, 3, 2, 2).channels_last(), tensor(first, 3, 1, 1));
  if (domain == Domain::Any && first != at::kBool) {
    sets.push_back({tensor(first, 4, 5).specials(), tensor(first, 4, 5).specials().transposed()});
  }
  for (at::ScalarType dtype : list) {
    if (dtype == first) continue;
    add(tensor(dtype, 2, 3), tensor(dtype, 2, 3));
    add(tensor(dtype, 2, 3), tensor(dtype));
  }
  if (mixing == Mixing::None) return sets;
  for (at::ScalarType dtype : list) {
    if (dtype != first) {
      add(tensor(dtype, 3, 2), tensor(first, 3, 2));
      add(tensor(first, 3, 2), tensor(dtype));
    }
    // A number is a value of its own: it is 2 or 2.5 in every domain.
    const Input operand = restrict(tensor(dtype, 2, 3), domain);
    if (domain != Domain::Unit && dtype != at::kBool) sets.push_back({operand, number(2)});
    if (domain != Domain::Unit && dtypes.contains(at::kFloat)) {
      sets.push_back({operand, number(2.5)});
      sets.push_back({number(2.5), operand});
    }
  }
  return sets;
}

std::vector<Inputs> ternary_inputs(Dtypes dtypes, Domain domain) {
  std::vector<Inputs> sets;
  const auto add = [&](const Input& a, const Input& b, const Input& c) {
    sets.push_back({restrict(a, domain), restrict(b, domain), restrict(c, domain)});
  };
  const std::vector<at::ScalarType> list = dtypes.list();
  const at::ScalarType first = list.front();
  add(tensor(first, 2, 1), tensor(first, 3), tensor(first, 1, 3));
  add(tensor(first), tensor(first, 2, 3), tensor(first, 3));
  add(tensor(first), tensor(first), tensor(first));
  add(tensor(first, 2, 0), tensor(first, 1), tensor(first, 2, 1));
  add(tensor(first, 3, 4).transposed(), tensor(first, 3, 4), tensor(first, 3, 4).strided());
  add(tensor(first, 2, 3, 2, 2).channels_last(), tensor(first, 2, 3, 2, 2), tensor(first, 3, 1, 1));
  for (at::ScalarType dtype : list) {
    add(tensor(dtype, 2, 3), tensor(dtype, 2, 3), tensor(dtype, 2, 3));
    add(tensor(dtype, 2, 3), tensor(dtype, 3), tensor(dtype));
  }
  return sets;
}

}  // namespace ahead::samples
