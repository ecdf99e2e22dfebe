# Writes unicode_sets.inc: the general categories of the Unicode version whose tables libllama has, so that words split as
# there, and the scripts and properties that patterns of schemas use. It needs a package of Python with that version:
#   pip install regex==2024.4.16 && python3 src/schema/unicode_sets.py >src/schema/unicode_sets.inc
import regex

VERSION = "15.1.0"  # of the package's tables
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf".split()
SCRIPTS = "Latin Greek Cyrillic Han Hiragana Katakana Hangul Arabic Hebrew Devanagari Thai".split()
PROPERTIES = "Emoji Emoji_Presentation Emoji_Modifier Emoji_Modifier_Base Emoji_Component Extended_Pictographic".split()
END = 0x110000


def boundaries(expression):
    """Returns where the characters that an expression matches begin and end in turn."""
    matches = regex.compile(expression).match
    places, inside = [], False
    for value in range(END):
        is_surrogate = 0xD800 <= value < 0xE000
        if (not is_surrogate and matches(chr(value)) is not None) != inside:
            places.append(value)
            inside = not inside
    return places + [END] if inside else places


def write(name, expression):
    line, separator = f'{{"{name}", {{', ""
    for place in boundaries(expression):
        item = separator + (str(place) if place < 10 else f"0x{place:X}")
        if len(line) + len(item) > 118:
            print(line)
            line = "  "
        line, separator = line + item, ","
    print(line + "}},")


print(f"// Unicode {VERSION}, written by unicode_sets.py: for each a name, then where it begins and ends in turn: "
      "1 to 5 is {1, 6}.\n// clang-format off")
for name in CATEGORIES:
    write(name, rf"\p{{gc={name}}}")
for name in SCRIPTS:
    write(name, rf"\p{{sc={name}}}")
for name in PROPERTIES:
    write(name, rf"\p{{{name}}}")
print("// clang-format on")
