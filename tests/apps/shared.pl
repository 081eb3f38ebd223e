# Shared variables of Perl threads: lock, cond_wait, cond_timedwait, cond_signal, cond_broadcast, with checked sums.
#
#     perl shared.pl THREADS ITEMS
#
# Half of the threads put the numbers 0 .. ITEMS-1 into a bounded shared array, the others take them out. Then all
# threads add numbers to one shared sum, each in its turn. Prints what arrived; whether it is right is judged by the
# caller:
#
#     part=queue items=N sum=S
#     part=turns items=N sum=S
#
# Every access to a shared variable takes the interpreter's one global lock, a mutex with a condition variable; lock()
# and cond_wait have a mutex and two condition variables for each variable.
use strict;
use warnings;
no warnings 'threads';    # "cond_signal() called on unlocked variable": the lock that counts, the array's, is held
use threads;
use threads::shared;

my ($threads, $items) = @ARGV;
die "usage: shared.pl THREADS ITEMS (two threads at least)\n" unless $items && $threads >= 2;

my $capacity  = 16;
my $producers = int($threads / 2);

my @queue :shared;
my $not_full :shared;
my $not_empty :shared;
my $finished :shared = 0;

sub produce {
    my ($number) = @_;
    for (my $value = $number; $value < $items; $value += $producers) {
        lock(@queue);
        cond_wait($not_full, @queue) while @queue >= $capacity;
        push @queue, $value;
        cond_signal($not_empty);
    }
    lock(@queue);
    $finished++;
    cond_broadcast($not_empty);
    return (0, 0);
}

sub consume {
    my ($taken, $sum) = (0, 0);
    while (1) {
        lock(@queue);
        until (@queue) {
            return ($taken, $sum) if $finished == $producers;
            cond_timedwait($not_empty, time() + 60, @queue) or die "nothing arrived for 60 s\n";
        }
        $sum += shift @queue;
        $taken++;
        cond_signal($not_full);
    }
}

my $turn :shared = 0;
my $total :shared = 0;

sub take_turns {
    my ($number) = @_;
    my $added = 0;
    for (my $value = $number; $value < $items; $value += $threads) {
        lock($turn);
        cond_wait($turn) while $turn != $value;
        $total += $value;
        $added++;
        $turn++;
        cond_broadcast($turn);
    }
    return ($added, 0);
}

# Runs work(0) .. work(count - 1), each in a thread; adds up what they return.
sub run {
    my ($count, $work) = @_;
    my @running = map { my $number = $_; threads->create({ context => 'list' }, $work, $number) } 0 .. $count - 1;
    my ($first, $second) = (0, 0);
    for my $thread (@running) {
        my ($a, $b) = $thread->join();
        die "a thread died\n" if $thread->error() or not defined $b;
        $first  += $a;
        $second += $b;
    }
    return ($first, $second);
}

my ($taken, $sum) = run($threads, sub { my ($number) = @_; $number < $producers ? produce($number) : consume() });
print "part=queue items=$taken sum=$sum\n";
my ($added) = run($threads, \&take_turns);
print "part=turns items=$added sum=$total\n";
