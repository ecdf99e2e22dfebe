// Errors name a field as the client does, whatever the API dialect.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "model/tiny_model.h"
#include "server/body_json.h"
#include "server/dialects/anthropic_dialect.h"
#include "server/dialects/llama_dialect.h"
#include "server/dialects/ollama_dialect.h"
#include "server/dialects/openai_dialect.h"
#include "server/dialects/responses_dialect.h"

namespace winnow::server {
namespace {

class ClientNamesTest : public testing::Test {
 protected:
  // Checks that a body is refused with a message that has all of `parts` and begins with the first one, its param.
  template <class Made, class... Arguments>
  void refuses(const std::string& body, const std::vector<std::string>& parts, Arguments... arguments) {
    try {
      Made(arguments...).parse(parse_body(body), *model_, {});
      ADD_FAILURE() << body;
    } catch (const ApiError& error) {
      const std::string sentence = error.what();
      EXPECT_EQ("'" + error.param + "'", parts.front()) << sentence;
      EXPECT_TRUE(sentence.starts_with(parts.front())) << sentence;
      for (const std::string& part : parts) EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
    }
  }
  void refuses_chat(const std::string& more, const std::vector<std::string>& parts) {
    refuses<OpenAiDialect>(kMessages + more + "}", parts, Endpoint::kChat, "m");
  }
  void refuses_message(const std::string& more, const std::vector<std::string>& parts) {
    refuses<AnthropicDialect>(kMessages + more + "}", parts, "m");
  }
  void refuses_response(const std::string& more, const std::vector<std::string>& parts) {
    refuses<ResponsesDialect>(R"({"input":"a",)" + more + "}", parts, "m", std::make_shared<ResponseStore>());
  }
  void refuses_ollama(const std::string& more, const std::vector<std::string>& parts) {
    refuses<OllamaDialect>(kMessages + more + "}", parts, OllamaDialect::Kind::kChat, "m");
  }
  void refuses_llama(const std::string& more, const std::vector<std::string>& parts) {
    refuses<LlamaDialect>(R"({"prompt":"a",)" + more + "}", parts, LlamaDialect::Kind::kCompletion, "m");
  }

  const std::string kMessages = R"({"messages":[{"role":"user","content":"a"}],)";
  const test::TinyModel file_{{.chat_template = test::kChatmlTemplate}};
  const std::shared_ptr<const Model> model_ = Model::load(file_.path());
};

TEST_F(ClientNamesTest, OpenAi) {
  refuses_chat(R"("grammar":"root ::= \"a\"","response_format":{"type":"text"})", {"'grammar'", "'response_format'"});
  refuses_chat(R"("grammar":"root ::= \"a\"","guided_json":{"type":"object"})", {"'grammar'", "'guided_json'"});
  refuses_chat(R"("tools":[{"function":{"name":"a b"}}])", {"'tools[0].function.name'"});
  refuses_chat(R"("tool_choice":{"function":{"name":"g"}})", {"'tool_choice.function.name'"});
}

TEST_F(ClientNamesTest, Anthropic) {
  refuses_message(R"("stop_sequences":[7])", {"'stop_sequences'"});
  refuses_message(R"("output_config":{"effort":"odd"})", {"'output_config.effort'"});
  const std::string schema = R"({"type":"json_schema","schema":{"type":"object"}})";
  const std::string grammar = R"("grammar":"root ::= \"a\"",)";
  refuses_message(grammar + R"("output_format":)" + schema, {"'grammar'", "'output_format'"});
  refuses_message(grammar + R"("output_config":{"format":)" + schema + "}", {"'grammar'", "'output_config.format'"});
  refuses_message(R"("tools":[{"name":"f"}],"output_format":)" + schema, {"'tools'", "'grammar'", "'output_format'"});
  refuses_message(R"("tools":[{"name":"a b"}])", {"'tools[0].name'"});
  refuses_message(R"("tools":[{"name":"f","input_schema":7}])", {"'tools[0].input_schema'"});
  // The index counts tools that are ignored.
  refuses_message(R"("tools":[{"type":"web_search_20250305","name":"w"},{"name":"a b"}])", {"'tools[1].name'"});
  refuses_message(R"("tools":[{"name":"f"}],"tool_choice":{"type":"tool","name":"g"})", {"'tool_choice.name'"});
  refuses<AnthropicDialect>(
      R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"1"}]}]})",
      {"'messages[1].content[0].name'"}, "m");
}

TEST_F(ClientNamesTest, Responses) {
  refuses_response(R"("max_output_tokens":"a")", {"'max_output_tokens'"});
  refuses_response(R"("reasoning":{"effort":"odd"})", {"'reasoning.effort'"});
  refuses_response(R"("text":{"format":{"type":"odd"}})", {"'text.format.type'"});
  refuses_response(R"("grammar":"root ::= \"a\"","text":{"format":{"type":"json_object"}})",
                   {"'grammar'", "'text.format'"});
  refuses_response(R"("tools":[{"type":"web_search"},{"type":"function","name":"a b"}])", {"'tools[1].name'"});
  refuses_response(R"("tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"g"})",
                   {"'tool_choice.name'"});
  refuses_response(
      R"("tools":[{"type":"function","name":"f"},{"type":"function","name":"g","parameters":7}],
         "tool_choice":{"type":"allowed_tools","tools":[{"type":"function","name":"g"}]})",
      {"'tools[1].parameters'"});
}

TEST_F(ClientNamesTest, Ollama) {
  for (const char* name : {"seed", "typical_p", "repeat_penalty", "mirostat_tau", "stop", "num_predict"}) {
    refuses_ollama(R"("options":{")" + std::string(name) + R"(":{}})", {"'options." + std::string(name) + "'"});
  }
  refuses_ollama(R"("tools":[{"function":{"name":"f"}}],"format":"json")", {"'tools'", "'format'"});
  refuses_ollama(R"("tools":[{"function":{"name":"a b"}}])", {"'tools[0].function.name'"});
}

TEST_F(ClientNamesTest, LlamaServer) {
  refuses_llama(R"("n_probs":"a")", {"'n_probs'"});
  refuses_llama(R"("grammar":"root ::= \"a\"","json_schema":{"type":"object"})", {"'grammar'", "'json_schema'"});
  refuses_llama(R"("response_format":{"type":"odd"})", {"'response_format.type'"});
}

}  // namespace
}  // namespace winnow::server
