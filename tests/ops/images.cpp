#include "ops/images.h"

namespace ahead::samples {

std::vector<Inputs> image_inputs(Dtypes dtypes, const std::vector<int64_t>& spatial,
                                 Unbatched unbatched) {
  std::vector<Inputs> sets;
  const auto image = [&](at::ScalarType dtype, std::vector<int64_t> leading) {
    leading.insert(leading.end(), spatial.begin(), spatial.end());
    return Input(dtype, leading);
  };
  const auto add_plain = [&](at::ScalarType dtype) {
    const Input input = image(dtype, {2, 3});
    sets.push_back({input});
    if (spatial.size() > 1) sets.push_back({input.channels_last()});
    if (unbatched == Unbatched::Yes) sets.push_back({image(dtype, {3})});
  };
  const std::vector<at::ScalarType> list = dtypes.list();
  for (at::ScalarType dtype : list) add_plain(dtype);

  const auto add_layouts = [&](const Input& input) {
    sets.push_back({input.transposed()});
    sets.push_back({input.permuted()});
    sets.push_back({input.strided()});
    sets.push_back({input.expanded()});
  };
  add_layouts(image(list.front(), {2, 3}));
  if (unbatched == Unbatched::Yes) add_layouts(image(list.front(), {3}));
  // Sizes of 1 make the memory format ambiguous.
  for (const std::vector<int64_t>& leading : {std::vector<int64_t>{1, 3}, {2, 1}, {1, 1}}) {
    sets.push_back({image(list.front(), leading)});
    if (spatial.size() > 1) sets.push_back({image(list.front(), leading).channels_last()});
  }
  // Three dimensions and channels may be taken for a batch of images in channels last.
  if (unbatched == Unbatched::Yes && spatial.size() == 3)
    sets.push_back({image(list.front(), {3}).channels_last()});
  return sets;
}

}  // namespace ahead::samples
