# Writes unicode_sets.inc: Unicode's general categories, and the scripts and properties that patterns of schemas use.
#   perl src/schema/unicode_sets.pl > src/schema/unicode_sets.inc
use strict; use warnings; use Unicode::UCD qw(prop_invlist);
my @cats = qw(Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf);
my @scripts = qw(Latin Greek Cyrillic Han Hiragana Katakana Hangul Arabic Hebrew Devanagari Thai);
my @props = qw(Emoji Emoji_Presentation Emoji_Modifier Emoji_Modifier_Base Emoji_Component Extended_Pictographic);
print "// Unicode ", Unicode::UCD::UnicodeVersion(), ", written by unicode_sets.pl: for each a name, then where it begins and ends in turn: 1 to 5 is {1, 6}.\n// clang-format off\n";
sub out { my ($name, @l) = @_; push @l, 0x110000 if @l % 2;
  my $line = "{\"$name\", {"; my $first = 1;
  for my $v (@l) { my $t = sprintf("%s%s", $first ? "" : ",", $v < 10 ? $v : sprintf("0x%X", $v)); $first = 0;
    if (length($line) + length($t) > 118) { print "$line\n"; $line = "  "; } $line .= $t; }
  print "$line}},\n"; }
for (@cats) { out($_, prop_invlist("gc=$_")); }
for (@scripts) { out($_, prop_invlist("sc=$_")); }
for (@props) { out($_, prop_invlist("$_=Y")); }
print "// clang-format on\n";
