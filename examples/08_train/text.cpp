#include "text.h"

const std::string_view story =
    R"(The keeper of the last light on the coast was a woman called Maren. Every evening she climbed the
stairs of the tower, one hundred and forty of them, and every evening she counted, although she knew how
many there were. At the top she cleaned the glass, filled the lamp and set the small wheel turning, and
then the long arm of light went out over the water, came back, and went out again.

The boats knew the light, and the light knew the boats. When the fog came in from the north, Maren rang
the bell as well, three strokes and a pause, three strokes and a pause, until the fog was tired of it and
went away. When the storm came, she stayed awake and wrote in her book: the wind is from the west, the
waves are as high as the wall, two boats are out and two boats came home.

One morning in the spring a boy stood at the door. He had walked all the way from the town with a loaf of
bread under his arm. He wanted to know how the light worked. Maren looked at the boy, and she looked at
the bread, and she said that the stairs were one hundred and forty, and that he might count them. He
counted one hundred and forty one. So they went down and counted again, and this time there were one
hundred and thirty nine.

They ate the bread at the top of the tower. Maren showed him the lamp, the glass and the small wheel. The
glass does not make the light, she said, it only tells the light where to go. The wheel does not make the
light either, it only tells the light when. And the lamp, asked the boy, does the lamp make the light? The
lamp burns the oil, said Maren, and the oil comes from the town, and so the town makes the light, and we
only carry it up the stairs.

After that the boy came every week, with bread in the spring, with plums in the summer, with apples in the
autumn. In the winter the road was closed, and he could not come. On the longest night of the year the
storm put out the lamp. Maren lit it again, and the storm put it out again, and when she had no more
matches she sat down on the top stair and did not know what to do.

Then she saw that there was a light in the town. It was a small light, and it moved: it went out over the
water, came back, and went out again. The boy had taken the lamp from the kitchen and the mirror from the
wall, and he stood in the window and turned the mirror with his hands, three strokes and a pause, three
strokes and a pause, until the morning came. Two boats were out, wrote Maren in her book, and two boats
came home. The stairs are one hundred and forty. The light is well.
)";
