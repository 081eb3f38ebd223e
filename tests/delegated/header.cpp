// The header in a program that has no exceptions, with every warning that such a program may want.
#include <flashlock_rcl.hpp>

int main()
{
    flashlock::delegated<int> value{flashlock::kind::delegated, "value", 6};
    flashlock::condition never;
    int& same = value.run([](int& number) -> int& { return number; });
    const bool ended = value.run([&](int& number, flashlock::inside& here) {
        ++number;
        return here.wait_for(never, std::chrono::milliseconds(1), [] { return false; });
    });
    return same == 7 && !ended ? 0 : 1;
}
