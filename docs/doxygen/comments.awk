# Doxygen's filter for include/winnow: turns the headers' plain comments into those that Doxygen reads. A comment before a
# declaration becomes ///, one after it on its line, with the lines below that stand in the same column, ///<. The first
# block of a header describes the file.
BEGIN { in_file_block = 1 }

in_file_block && /^\/\/ / {
  if (!is_described) print "/// @file"
  is_described = 1
  sub(/^\/\//, "///")
  print
  next
}
{ in_file_block = 0 }

/^[ \t]*\/\/( |$)/ {
  sub(/\/\//, index($0, "//") == trailing ? "///<" : "///")
  print
  next
}

{ trailing = 0 }
/= default;|&&\) noexcept;/ { print ""; next }  # copies, moves and comparisons do what one expects
/[^ \t].*[ \t]\/\/ / {
  at = index($0, " // ") + 1
  trailing = at
  print substr($0, 1, at - 1) "///<" substr($0, at + 2)
  next
}
{ print }
