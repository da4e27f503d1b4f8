#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace epmoe::test {

/// `call` must throw exactly an `E` whose text has every one of `parts`.
template <class E, class Call, class... Parts>
void expect_error(const Call& call, const Parts&... parts) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const E& error) {
    const std::string what = error.what();
    for (const std::string& part : {std::string(parts)...}) EXPECT_THAT(what, ::testing::HasSubstr(part));
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
  }
}

}  // namespace epmoe::test
