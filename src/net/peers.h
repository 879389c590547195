// Peers: how many connections each address has. Any thread.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <map>
#include <string>

#include "base/guarded.h"

namespace quern {

class Peers {
 public:
  /// Who holds an address: all of a network of IPv6 that one host may have.
  static std::string key(const boost::asio::ip::address& address) {
    if (address.is_v4()) return address.to_string();
    const auto bytes = address.to_v6().to_bytes();
    if (address.to_v6().is_v4_mapped())
      return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, address.to_v6()).to_string();
    return std::string(bytes.begin(), bytes.begin() + 8);
  }

  /// False, and nothing has changed, when there are `most` of that peer; 0: no limit.
  bool enter(const std::string& peer, int most) {
    return counts_.with([&](Counts& counts) {
      int& count = counts[peer];
      if (most > 0 && count >= most) return false;
      ++count;
      return true;
    });
  }
  void leave(const std::string& peer) {
    counts_.with([&](Counts& counts) {
      const auto found = counts.find(peer);
      if (--found->second == 0) counts.erase(found);
    });
  }

 private:
  using Counts = std::map<std::string, int>;  // none is 0
  Guarded<Counts> counts_;
};

}  // namespace quern
