// Pickles as Python 2 writes them in protocol 2: the files of cifar-10-batches-py.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace convoy::testing {

/// Writes the opcodes of one pickle. After each value that may be referred to, it stores the value in the
/// memo, unless it was told otherwise; Python leaves this out for values with a single reference.
class PickleText {
 public:
  explicit PickleText(bool stores = true) : stores_(stores) {}

  PickleText& raw(const std::string& bytes) {
    text_ += bytes;
    return *this;
  }
  /// Stores the last value in the memo.
  PickleText& put() {
    if (!stores_) return *this;
    text_ += next_ < 256 ? std::string{'q', static_cast<char>(next_)} : "r" + little_endian(next_, 4);
    ++next_;
    return *this;
  }
  PickleText& number(std::int64_t value) {
    if (0 <= value && value < 256) return raw("K" + little_endian(static_cast<std::uint64_t>(value), 1));
    if (0 <= value && value < 65536) return raw("M" + little_endian(static_cast<std::uint64_t>(value), 2));
    return raw("J" + little_endian(static_cast<std::uint64_t>(value), 4));
  }
  PickleText& text(const std::string& value) {
    return raw("U" + little_endian(value.size(), 1) + value).put();
  }
  /// Writes a list. `item(i)` writes element i. Python appends up to 1000 at once.
  template <class F>
  PickleText& list(std::size_t count, F&& item) {
    raw("]").put();
    for (std::size_t begin = 0; begin < count; begin += 1000) {
      const std::size_t end = std::min(count, begin + 1000);
      if (end > begin + 1) raw("(");
      for (std::size_t i = begin; i < end; ++i) item(i);
      raw(end > begin + 1 ? "e" : "a");
    }
    return *this;
  }
  /// Writes the beginning of an array u8 [rows, columns]; `size` bytes must follow, and then array_end().
  PickleText& array_begin(std::int64_t rows, std::int64_t columns, std::uint64_t size) {
    raw("cnumpy.core.multiarray\n_reconstruct\n").put().raw("cnumpy\nndarray\n").put();
    number(0).raw("\x85").put().text("b").raw("\x87").put().raw("R").put().raw("(").number(1);
    number(rows)
        .number(columns)
        .raw("\x86")
        .put()
        .raw("cnumpy\ndtype\n")
        .put()
        .text("u1")
        .number(0)
        .number(1);
    raw("\x87").put().raw("R").put().raw("(").number(3).text("|").raw("NNN").number(-1).number(-1).number(0);
    return raw("t").put().raw("b\x89T" + little_endian(size, 4));
  }
  PickleText& array_end() { return put().raw("t").put().raw("b"); }

  const std::string& get() const { return text_; }

 private:
  static std::string little_endian(std::uint64_t value, int size) {
    std::string bytes;
    for (int i = 0; i < size; ++i) bytes += static_cast<char>(value >> (8 * i));
    return bytes;
  }
  std::string text_;
  bool stores_;
  std::uint64_t next_ = 1;
};

/// The two parts of a batch file, before and after the 3072 bytes of each image.
struct PickledBatch {
  std::string before, after;

  /// `list` is the key of the labels. With `other`, there is a second list of labels, all 0, before it.
  explicit PickledBatch(const std::vector<int>& labels, bool stores = true,
                        const std::string& list = "labels", const std::string& other = "") {
    PickleText text(stores);
    text.raw("\x80\x02}").put().raw("(").text("batch_label").text("training batch 1 of 5");
    if (!other.empty()) text.text(other).list(labels.size(), [&](std::size_t) { text.number(0); });
    text.text(list);
    text.list(labels.size(), [&](std::size_t i) { text.number(labels[i]); });
    text.text("data").array_begin(static_cast<std::int64_t>(labels.size()), 3072, 3072 * labels.size());
    before = text.get();
    text.array_end().text("filenames");
    text.list(labels.size(), [&](std::size_t i) { text.text("image_s_" + std::to_string(i) + ".png"); });
    text.raw("u.");
    after = text.get().substr(before.size());
  }
};

/// Returns the file batches.meta.
inline std::string pickled_names(const std::vector<std::string>& names,
                                 const std::string& list = "label_names") {
  PickleText text;
  text.raw("\x80\x02}").put().raw("(").text("num_cases_per_batch").number(10000).text(list);
  text.list(names.size(), [&](std::size_t i) { text.text(names[i]); });
  return text.text("num_vis").number(3072).raw("u.").get();
}

}  // namespace convoy::testing
