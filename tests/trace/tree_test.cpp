#include "ahead/tree.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "ahead/errors.h"

namespace geometry {

enum class Frame { World, Camera };

struct Pose {
  at::Tensor rotation;
  at::Tensor translation;
};
AHEAD_TREE(Pose, rotation, translation)

struct Scene {
  std::vector<Pose> poses;
  std::optional<at::Tensor> background;
  Frame frame = Frame::World;
  const int64_t version = 3;
};
AHEAD_TREE(Scene, poses, background, frame, version);

struct Announced {
  struct Inside {
    at::Tensor x;
  };
  Inside inside;
};

/// A tree of any depth.
struct Branch {
  at::Tensor weight;
  std::vector<Branch> children;
};
AHEAD_TREE(Branch, weight, children)

}  // namespace geometry

AHEAD_TREE(geometry::Announced::Inside, x)
AHEAD_TREE(geometry::Announced, inside)

namespace tree_test {

using ahead::TreeType;

struct Nothing {};
AHEAD_TREE(Nothing)

struct AllKinds {
  bool flag;
  int8_t small;
  uint64_t large;
  float single_precision;
  double double_precision;
  at::Scalar scalar;
  at::Device device = at::kCPU;
  std::string text;
  c10::IValue any;
  std::array<at::Tensor, 2> array;
  std::pair<at::Tensor, int> pair;
  std::tuple<> empty;
  std::map<std::string, at::Tensor> map;
  std::unordered_map<std::string, int> unordered;
  std::vector<bool> bits;
  std::optional<std::optional<int>> nested;
};
AHEAD_TREE(AllKinds, flag, small, large, single_precision, double_precision, scalar, device, text,
           any, array, pair, empty, map, unordered, bits, nested)

struct Wide {
  int a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, c0, c1, c2,
      c3, c4, c5, c6, c7, c8, c9, d0, d1;
};
AHEAD_TREE(Wide, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, c0,
           c1, c2, c3, c4, c5, c6, c7, c8, c9, d0, d1)

struct Base {
  at::Tensor shared;
};
class Derived : public Base {
 public:
  explicit Derived(at::Tensor tensor, int64_t count) : Base{tensor}, count(count) {}
  int64_t count;
  std::function<void()> callback;
};
AHEAD_TREE(Derived, shared, count)

at::Tensor number(double value) {
  return at::full({}, value);
}

std::vector<double> numbers(const std::vector<at::Tensor>& leaves) {
  std::vector<double> values;
  for (const at::Tensor& leaf : leaves) values.push_back(leaf.item<double>());
  return values;
}

template <class T>
std::string words(const T& tree) {
  return ahead::flatten(tree).spec.str();
}

/// Checks that a tree prints as it should, and that taking it apart and putting it together again
/// with other tensors changes those and nothing else.
template <class T>
void expect_tree(const T& tree, const std::string& text) {
  static_assert(TreeType<T>);
  const ahead::FlatTree flat = ahead::flatten(tree);
  EXPECT_EQ(flat.spec.str(), text);
  EXPECT_EQ(flat.spec.num_tensors(), flat.leaves.size());

  std::vector<at::Tensor> others;
  for (size_t i = 0; i < flat.leaves.size(); ++i) others.push_back(number(100.0 + double(i)));
  const T copy = ahead::unflatten(tree, others);
  const ahead::FlatTree flat_copy = ahead::flatten(copy);
  EXPECT_EQ(flat_copy.spec, flat.spec);
  EXPECT_EQ(flat_copy.spec.hash(), flat.spec.hash());
  ASSERT_EQ(flat_copy.leaves.size(), others.size());
  for (size_t i = 0; i < others.size(); ++i) EXPECT_TRUE(flat_copy.leaves[i].is_same(others[i]));

  const ahead::FlatTree again = ahead::flatten(tree);
  EXPECT_EQ(again.spec, flat.spec);
  for (size_t i = 0; i < others.size(); ++i) EXPECT_TRUE(again.leaves[i].is_same(flat.leaves[i]));
}

template <class T>
void expect_different(const T& a, const T& b) {
  EXPECT_NE(ahead::flatten(a).spec, ahead::flatten(b).spec);
  EXPECT_NE(ahead::flatten(a).spec.hash(), ahead::flatten(b).spec.hash());
}

TEST(Tree, TensorsAreLeaves) {
  expect_tree(number(1), "Tensor");
  EXPECT_EQ(numbers(ahead::flatten(std::pair(number(1), number(2))).leaves),
            (std::vector<double>{1, 2}));
}

TEST(Tree, UndefinedTensorsAreStructure) {
  expect_tree(at::Tensor(), "undefined");
  expect_tree(std::vector<at::Tensor>{at::Tensor(), number(1)}, "[undefined, Tensor]");
  expect_different(at::Tensor(), number(1));
}

TEST(Tree, ConstantsAreStructure) {
  expect_tree(true, "true");
  expect_tree('a', "97");
  expect_tree(short{-3}, "-3");
  expect_tree(std::numeric_limits<int64_t>::min(), "-9223372036854775808");
  expect_tree(std::numeric_limits<uint64_t>::max(), "18446744073709551615");
  expect_tree(2.5f, "2.5");
  expect_tree(3.0, "3.0");
  expect_tree(std::string("mean"), "\"mean\"");
  expect_tree(at::Scalar(3), "3");
  expect_tree(at::Scalar(true), "true");
  expect_tree(at::Scalar(c10::complex<double>(1, 2)), "complex(1.0, 2.0)");
  expect_tree(at::Device("cuda:1"), "device(\"cuda:1\")");
  expect_tree(geometry::Frame::Camera, "geometry::Frame(1)");

  expect_different(1, 2);
  expect_different(true, false);
  expect_different(std::string("a"), std::string("b"));
  expect_different(at::Scalar(1), at::Scalar(1.0));
  expect_different(at::Scalar(1), at::Scalar(true));
  expect_different(at::Scalar(c10::complex<double>(1, 2)), at::Scalar(c10::complex<double>(1, 3)));
  expect_different(std::numeric_limits<uint64_t>::max(), std::numeric_limits<uint64_t>::max() - 1);
  expect_different(at::Device("cuda:0"), at::Device("cuda:1"));
  expect_different(geometry::Frame::Camera, geometry::Frame::World);
}

TEST(Tree, FloatsCompareByTheirBits) {
  expect_different(0.0, -0.0);
  expect_tree(std::nan(""), "nan");
  EXPECT_EQ(ahead::flatten(std::nan("")).spec, ahead::flatten(std::nan("")).spec);
  EXPECT_NE(ahead::flatten(0.1f).spec, ahead::flatten(0.1).spec);
}

TEST(Tree, Optionals) {
  using Maybe = std::optional<at::Tensor>;
  expect_tree(Maybe(number(1)), "Tensor");
  expect_tree(Maybe(at::Tensor()), "undefined");
  expect_tree(Maybe(), "none");
  expect_different(Maybe(at::Tensor()), Maybe());
  expect_tree(std::optional<int>(3), "3");

  using Twice = std::optional<std::optional<int>>;
  expect_tree(Twice(std::optional<int>()), "some(none)");
  expect_tree(Twice(3), "some(3)");
  expect_different(Twice(std::optional<int>()), Twice());
  expect_different(std::optional(c10::IValue()), std::optional<c10::IValue>());
}

TEST(Tree, Collections) {
  expect_tree(std::vector<at::Tensor>(), "[]");
  expect_tree(std::vector<int64_t>{1, 2}, "[1, 2]");
  expect_tree(std::vector<bool>{true, false}, "[true, false]");
  expect_tree(std::array<at::Tensor, 2>{number(1), number(2)}, "[Tensor, Tensor]");
  expect_tree(std::pair(number(1), 3), "(Tensor, 3)");
  expect_tree(std::tuple(number(1), 3, std::vector<at::Tensor>{at::Tensor()}),
              "(Tensor, 3, [undefined])");
  expect_tree(std::tuple<>(), "()");
  expect_tree(std::vector<std::vector<at::Tensor>>{{number(1)}, {}, {number(2), number(3)}},
              "[[Tensor], [], [Tensor, Tensor]]");
  expect_different(std::vector<std::vector<int>>{{1}, {}}, std::vector<std::vector<int>>{{}, {1}});
}

TEST(Tree, MapsAreInTheOrderOfTheirKeys) {
  const std::map<std::string, at::Tensor> map{{"b", number(2)}, {"a", number(1)}};
  expect_tree(map, "{\"a\": Tensor, \"b\": Tensor}");
  EXPECT_EQ(numbers(ahead::flatten(map).leaves), (std::vector<double>{1, 2}));
  const std::map<std::string, int, std::greater<>> backwards{{"a", 1}, {"b", 2}};
  expect_tree(backwards, "{\"a\": 1, \"b\": 2}");

  std::unordered_map<std::string, at::Tensor> few, many(1000);
  for (int i = 0; i < 20; ++i) {
    few[std::to_string(i)] = number(i);
    many[std::to_string(19 - i)] = number(19 - i);
  }
  EXPECT_EQ(ahead::flatten(few).spec, ahead::flatten(many).spec);
  EXPECT_EQ(numbers(ahead::flatten(few).leaves), numbers(ahead::flatten(many).leaves));
  expect_different(std::map<std::string, int>{{"a", 1}}, std::map<std::string, int>{{"b", 1}});
}

TEST(Tree, Structs) {
  using namespace geometry;
  const Scene scene{{Pose{number(1), number(2)}, Pose{number(3), at::Tensor()}}, number(4)};
  expect_tree(std::vector<Pose>(scene.poses),
              "[Pose{rotation: Tensor, translation: Tensor}, "
              "Pose{rotation: Tensor, translation: undefined}]");
  EXPECT_EQ(numbers(ahead::flatten(scene).leaves), (std::vector<double>{1, 2, 3, 4}));
  expect_tree(Scene{}, "Scene{poses: [], background: none, frame: geometry::Frame(0), version: 3}");
  expect_tree(Branch{number(1), {Branch{number(2), {}}}},
              "Branch{weight: Tensor, children: [Branch{weight: Tensor, children: []}]}");
  expect_tree(Announced{{number(1)}},
              "geometry::Announced{inside: geometry::Announced::Inside{x: Tensor}}");
  expect_tree(Nothing(), "Nothing{}");
  EXPECT_EQ(ahead::flatten(Wide{}).spec.str().substr(0, 20), "Wide{a0: 0, a1: 0, a");
  Wide wide{};
  wide.d1 = 1;
  expect_different(Wide{}, wide);
}

TEST(Tree, AClassMayKeepFieldsToItself) {
  Derived derived(number(1), 2);
  int calls = 0;
  derived.callback = [&] { ++calls; };
  expect_tree(derived, "Derived{shared: Tensor, count: 2}");
  ahead::unflatten(derived, {number(5)}).callback();
  EXPECT_EQ(calls, 1);
}

TEST(Tree, EveryKindInOneStruct) {
  AllKinds all;
  all.flag = true;
  all.small = -1;
  all.large = 7;
  all.single_precision = 0.5f;
  all.double_precision = 0.25;
  all.scalar = 2;
  all.text = "sum";
  all.any = number(1);
  all.array = {number(2), at::Tensor()};
  all.pair = {number(3), 4};
  all.map = {{"k", number(4)}};
  all.unordered = {{"n", 5}};
  all.bits = {true};
  all.nested = 6;
  expect_tree(
      all,
      "AllKinds{flag: true, small: -1, large: 7, single_precision: 0.5, double_precision: "
      "0.25, scalar: 2, device: device(\"cpu\"), text: \"sum\", any: Tensor, array: [Tensor, "
      "undefined], pair: (Tensor, 4), empty: (), map: {\"k\": Tensor}, unordered: {\"n\": 5}, "
      "bits: [true], nested: some(6)}");
  EXPECT_EQ(numbers(ahead::flatten(all).leaves), (std::vector<double>{1, 2, 3, 4}));
}

TEST(Tree, IValues) {
  expect_tree(c10::IValue(), "none");
  expect_tree(c10::IValue(number(1)), "Tensor");
  expect_tree(c10::IValue(at::Tensor()), "undefined");
  expect_tree(c10::IValue(int64_t{3}), "3");
  expect_tree(c10::IValue(std::string("x")), "\"x\"");
  expect_tree(c10::IValue(std::vector<int64_t>{1, 2}), "[1, 2]");
  expect_tree(c10::IValue(std::vector<at::Tensor>{number(1), number(2)}), "[Tensor, Tensor]");
  expect_tree(c10::IValue(std::tuple(number(1), true)), "(Tensor, true)");

  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("b", number(1));
  dict.insert("a", number(2));
  expect_tree(c10::IValue(dict), "{\"b\": Tensor, \"a\": Tensor}");

  c10::List<std::optional<at::Tensor>> indices;
  indices.push_back(number(1));
  indices.push_back(std::nullopt);
  expect_tree(c10::IValue(indices), "[Tensor, none]");

  auto nested = c10::impl::GenericList(c10::AnyType::get());
  nested.push_back(dict);
  nested.push_back(std::tuple(number(3), std::vector<at::Tensor>{number(4)}));
  expect_tree(c10::IValue(nested), "[{\"b\": Tensor, \"a\": Tensor}, (Tensor, [Tensor])]");

  expect_different(c10::IValue(1), c10::IValue(true));
  expect_different(c10::IValue(std::vector<int64_t>()), c10::IValue(std::vector<double>()));
}

TEST(Tree, IValuesKeepTheirTypes) {
  const auto type = c10::TupleType::createNamed(c10::QualifiedName("__torch__.Point"),
                                                std::vector<std::string>{"x", "y"},
                                                {c10::TensorType::get(), c10::IntType::get()});
  const c10::IValue point = c10::ivalue::Tuple::createNamed({number(1), 2}, type);
  expect_tree(point, "(Tensor, 2)");
  EXPECT_EQ(ahead::unflatten(point, {number(3)}).toTupleRef().type()->names(), type->names());
  expect_different(point, c10::IValue(std::tuple(number(1), 2)));

  const c10::IValue list(std::vector<at::Tensor>{number(1)});
  EXPECT_TRUE(ahead::unflatten(list, {number(2)}).isTensorList());
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("a", number(1));
  const auto copy = ahead::unflatten(c10::IValue(dict), {number(2)}).toGenericDict();
  EXPECT_EQ(*copy.keyType(), *c10::StringType::get());
  EXPECT_EQ(*copy.valueType(), *c10::TensorType::get());
}

TEST(Tree, ObjectsInIValuesCompareByIdentity) {
  auto capsule = [] {
    return c10::IValue::make_capsule(c10::make_intrusive<torch::CustomClassHolder>());
  };
  const c10::IValue one = capsule(), two = capsule();
  EXPECT_EQ(ahead::flatten(one).spec, ahead::flatten(one).spec);
  EXPECT_NE(ahead::flatten(one).spec, ahead::flatten(two).spec);
  EXPECT_EQ(ahead::flatten(one).spec.hash(), ahead::flatten(two).spec.hash());
  EXPECT_EQ(words(one), "opaque(\"Capsule\")");
}

TEST(Tree, WritesToACopiedCollectionStayThere) {
  const c10::IValue list(std::vector<at::Tensor>{number(1)});
  ahead::unflatten(list, {number(2)}).toTensorList().push_back(number(3));
  EXPECT_EQ(words(list), "[Tensor]");
}

TEST(Tree, UnflattenChecksTheNumberOfLeaves) {
  const std::pair tree(number(1), number(2));
  EXPECT_THROW(ahead::unflatten(tree, {number(1)}), ahead::UserError);
  try {
    ahead::unflatten(tree, {number(1), number(2), number(3)});
    FAIL();
  } catch (const ahead::UserError& error) {
    EXPECT_EQ(
        error.msg(),
        "[tree] unflatten: the tree holds 2 tensors, but 3 tensors came to take their places. "
        "Pass one leaf for each defined tensor.");
  }
}

TEST(Tree, OtherTypesAreNoTrees) {
  struct Logger {};
  static_assert(!TreeType<Logger>);
  static_assert(!TreeType<std::vector<Logger>>);
  static_assert(!TreeType<std::tuple<at::Tensor, Logger*>>);
  static_assert(!TreeType<std::tuple<at::Tensor&>>);
  static_assert(!TreeType<const char*>);
  static_assert(!TreeType<at::TensorList>);
  static_assert(!TreeType<long double>);
  static_assert(!TreeType<std::map<int, at::Tensor>>);
  static_assert(TreeType<const geometry::Pose>);
}

}  // namespace tree_test
