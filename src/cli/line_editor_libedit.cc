#include <histedit.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <string>
#include <string_view>

#include "cli/input_wait.h"
#include "cli/line_editor.h"
#include "winnow/error.h"

namespace winnow::cli {
namespace {

struct EditLineDeleter {
  void operator()(EditLine* editor) const { el_end(editor); }
};
struct HistoryDeleter {
  void operator()(History* history) const { history_end(history); }
};
struct FileDeleter {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// libedit takes and returns text in the locale's encoding, and models use UTF-8.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
}

class LineEditor : public LineSource {
 public:
  explicit LineEditor(const ChatHistory* file) : file_(file) {
    use_utf8();
    // The standard error is not buffered, and a write for every character flickers.
    output_.reset(fdopen(dup(STDERR_FILENO), "w"));
    history_.reset(history_init());
    if (output_ != nullptr) editor_.reset(el_init("winnow", stdin, output_.get(), output_.get()));
    if (editor_ == nullptr || history_ == nullptr) {
      throw Error(ErrorCode::kIo, "cannot edit lines on this terminal: set TERM=dumb to type without editing");
    }
    HistEvent event;
    history(history_.get(), &event, H_SETSIZE, static_cast<int>(ChatHistory::kMostLines));
    history(history_.get(), &event, H_SETUNIQUE, 1);
    if (file_ != nullptr) {
      for (const std::string& line : file_->lines()) history(history_.get(), &event, H_ENTER, line.c_str());
    }
    EditLine* editor = editor_.get();
    el_set(editor, EL_CLIENTDATA, this);
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_HIST, history, history_.get());
    el_set(
        editor, EL_PROMPT, +[](EditLine* of) { return self(of)->prompt_.data(); });
    el_set(editor, EL_GETCFN, read_character);
    // While a line is edited, Ctrl-C arrives as a character: as a signal it would overtake the characters typed before
    // it, which the terminal would then discard. libedit takes over the terminal's own keys when it first edits, so
    // only then can one be removed.
    el_set(editor, EL_PREP_TERM, 1);
    el_set(editor, EL_PREP_TERM, 0);
    el_set(editor, EL_SETTY, "-d", "intr=", nullptr);
    el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    for (const auto& [keys, command] : kKeys) el_set(editor, EL_BIND, keys, command, nullptr);
    el_source(editor, nullptr);  // the user's own ~/.editrc
  }

  InputLine next(const std::string& prompt, const Interrupt& interrupt) override {
    prompt_ = prompt;
    interrupt_ = &interrupt;
    had_text_ = is_interrupted_ = false;
    // The terminal is set up before the prompt is shown: the user may type at once, and the terminal's own editing
    // would consume Ctrl-D and other keys.
    el_set(editor_.get(), EL_PREP_TERM, 1);
    el_resize(editor_.get());  // the window may have another size by now
    int n_bytes = 0;
    const char* line = el_gets(editor_.get(), &n_bytes);
    const int error = errno;
    if (line == nullptr || n_bytes <= 0) {
      if (is_interrupted_) {
        std::fputs("^C\n", output_.get());
        std::fflush(output_.get());
        return {.kind = InputLine::Kind::kInterrupted, .had_text = had_text_};
      }
      if (n_bytes == 0) return {InputLine::Kind::kEnd};
      throw Error(ErrorCode::kIo, std::string("reading the terminal failed: ") + std::strerror(error));
    }
    std::string text(line, static_cast<std::size_t>(n_bytes));
    while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
    if (text.find_first_not_of(" \t") != std::string::npos) remember(text);
    return {InputLine::Kind::kText, std::move(text)};
  }

 private:
  // The sequences that terminals send for Home, End, Delete and Ctrl with an arrow, besides libedit's own keys.
  static constexpr struct {
    const char *keys, *command;
  } kKeys[] = {{"\\e[1~", "ed-move-to-beg"},      {"\\e[4~", "ed-move-to-end"}, {"\\e[H", "ed-move-to-beg"},
               {"\\e[F", "ed-move-to-end"},       {"\\eOH", "ed-move-to-beg"},  {"\\eOF", "ed-move-to-end"},
               {"\\e[3~", "ed-delete-next-char"}, {"\\e[1;5C", "em-next-word"}, {"\\e[1;5D", "ed-prev-word"}};

  static LineEditor* self(EditLine* editor) {
    void* data = nullptr;
    el_get(editor, EL_CLIENTDATA, &data);
    return static_cast<LineEditor*>(data);
  }

  static constexpr char kCtrlC = '\x03', kCtrlD = '\x04';

  // libedit's own reader continues after a signal; this one lets Ctrl-C and a signal from elsewhere end the line.
  static int read_character(EditLine* editor, wchar_t* character) {
    LineEditor& line = *self(editor);
    std::mbstate_t state = {};
    while (true) {
      char byte = 0;
      const bool has_input = wait_for_input(*line.interrupt_);
      const ssize_t count = has_input ? ::read(STDIN_FILENO, &byte, 1) : 0;
      if (!has_input || (count == 1 && byte == kCtrlC)) {
        const LineInfoW* info = el_wline(editor);
        line.had_text_ = info->lastchar != info->buffer;
        line.is_interrupted_ = true;
        return -1;
      }
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return static_cast<int>(count);
      // Linux passes a Ctrl-D on as '\0' if it was typed before this line was asked for.
      if (byte == '\0') byte = kCtrlD;
      const bool is_first = std::mbsinit(&state) != 0;
      std::size_t length = std::mbrtowc(character, &byte, 1, &state);
      if (length == static_cast<std::size_t>(-1) && !is_first) {
        // The character before was broken off, and this byte begins another.
        state = {};
        length = std::mbrtowc(character, &byte, 1, &state);
      }
      if (length == static_cast<std::size_t>(-2)) continue;  // more bytes of this character are to come
      if (length == static_cast<std::size_t>(-1)) {
        state = {};
        continue;  // not a character
      }
      return 1;
    }
  }

  void remember(const std::string& line) {
    HistEvent event;
    history(history_.get(), &event, H_ENTER, line.c_str());
    if (file_ != nullptr) file_->add(line);
  }

  const ChatHistory* file_;
  const Interrupt* interrupt_ = nullptr;
  std::string prompt_;
  bool had_text_ = false;        // an interrupted line had text
  bool is_interrupted_ = false;  // Ctrl-C or a signal ended the line
  std::unique_ptr<std::FILE, FileDeleter> output_;
  std::unique_ptr<History, HistoryDeleter> history_;
  std::unique_ptr<EditLine, EditLineDeleter> editor_;
};

}  // namespace

const char* line_editor_name() { return "libedit"; }

bool can_edit_lines() {
  const char* terminal = std::getenv("TERM");
  const bool can_move = terminal != nullptr && *terminal != '\0' && std::string_view(terminal) != "dumb";
  return isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1 && can_move;
}

std::unique_ptr<LineSource> make_line_editor(const ChatHistory* history) {
  return std::make_unique<LineEditor>(history);
}

}  // namespace winnow::cli
