// goroutines: a thousand goroutines with channels, a mutex and an atomic counter; garbage that is
// collected; sleep and time-outs; panics that are recovered, also of faults; pipes of the operating
// system; goroutines that compute without a call, beside others. The last line is "goroutines: ok".
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

const many = 1000

func fail(format string, values ...any) {
	fmt.Printf("goroutines: "+format+"\n", values...)
	os.Exit(1)
}

// Each adds its number, by way of a channel, a mutex and a counter.
func add() {
	numbers := make(chan int)
	var all sync.WaitGroup
	var lock sync.Mutex
	var counter atomic.Int64
	sum := 0
	for i := 0; i < many; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			counter.Add(int64(i))
			lock.Lock()
			sum += i
			lock.Unlock()
			numbers <- i
		}(i)
	}
	if runtime.NumGoroutine() < many/2 {
		// They wait for whoever takes the numbers.
		time.Sleep(10 * time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n < many {
		fail("%d goroutines, not %d", n, many)
	}
	got := 0
	for i := 0; i < many; i++ {
		got += <-numbers
	}
	all.Wait()
	if want := many * (many - 1) / 2; got != want || sum != want || counter.Load() != int64(want) {
		fail("sums %d, %d, %d, not %d", got, sum, counter.Load(), want)
	}
}

// A ring of goroutines passes a token on.
func ring() {
	first := make(chan int)
	from := first
	for i := 0; i < many; i++ {
		to := make(chan int)
		go func(from, to chan int) {
			for token := range from {
				to <- token + 1
			}
			close(to)
		}(from, to)
		from = to
	}
	for round := 0; round < 3; round++ {
		go func() { first <- round }()
		if token := <-from; token != round+many {
			fail("a ring gave %d in round %d", token, round)
		}
	}
	close(first)
	<-from
}

type tree struct{ left, right *tree }

func grow(depth int) *tree {
	if depth == 0 {
		return &tree{}
	}
	return &tree{grow(depth - 1), grow(depth - 1)}
}

func (t *tree) count() int {
	if t.left == nil {
		return 1
	}
	return 1 + t.left.count() + t.right.count()
}

// Garbage of 320 MiB, which is more than the node has, while a tree stays.
func collect() {
	kept := grow(14)
	var all sync.WaitGroup
	for worker := 0; worker < 4; worker++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := 0; i < 40; i++ {
				if n := grow(9).count(); n != 1<<10-1 {
					fail("a tree has %d nodes", n)
				}
				if block := make([]byte, 2<<20); block[len(block)-1] != 0 {
					fail("a new block is not zero")
				}
			}
		}()
	}
	all.Wait()
	runtime.GC()
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	if n := kept.count(); n != 1<<15-1 || stats.NumGC == 0 {
		fail("%d nodes are left after %d collections", n, stats.NumGC)
	}
	if stats.HeapAlloc > 64<<20 {
		fail("%d bytes of garbage stay", stats.HeapAlloc)
	}
}

func sleep() {
	begin := time.Now()
	time.Sleep(30 * time.Millisecond)
	if span := time.Since(begin); span < 30*time.Millisecond {
		fail("30 ms took %v", span)
	}
	select {
	case <-make(chan int):
	case <-time.After(20 * time.Millisecond):
	}
	ticker := time.NewTicker(5 * time.Millisecond)
	for i := 0; i < 5; i++ {
		<-ticker.C
	}
	ticker.Stop()
	// All at once.
	var all sync.WaitGroup
	for i := 0; i < many; i++ {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			time.Sleep(time.Duration(i%50) * time.Millisecond)
		}(i)
	}
	all.Wait()
}

type box struct{ value int }

// What a function panics with.
func recovered(run func()) (what any) {
	defer func() { what = recover() }()
	run()
	return nil
}

func panics() {
	if what := recovered(func() { panic("on purpose") }); what != "on purpose" {
		fail("recovered %v", what)
	}
	var nothing *box
	var list []int
	zero := len(list)
	for name, run := range map[string]func(){
		"a nil pointer":  func() { nothing.value++ },
		"an index":       func() { list[zero+5]++ },
		"a division":     func() { zero = 1 / zero },
		"a closed queue": func() { c := make(chan int); close(c); close(c) },
	} {
		var failure runtime.Error
		what, isError := recovered(run).(error)
		if !isError || !errors.As(what, &failure) {
			fail("%s: recovered %v", name, what)
		}
	}
	done := make(chan any)
	go func() { done <- recovered(func() { nothing.value = 3 }) }()
	if what := <-done; what == nil {
		fail("a fault in a goroutine was not recovered")
	}
}

// Pipes of the operating system: goroutines that wait for them wait in its poller.
func pipes() {
	var all sync.WaitGroup
	for i := 0; i < 20; i++ {
		reader, writer, err := os.Pipe()
		if err != nil {
			fail("a pipe: %v", err)
		}
		all.Add(2)
		go func(i int) {
			defer all.Done()
			time.Sleep(time.Duration(i) * time.Millisecond)
			fmt.Fprintf(writer, "line %d\n", i)
			writer.Close()
		}(i)
		go func(i int) {
			defer all.Done()
			var number int
			if _, err := fmt.Fscanf(reader, "line %d\n", &number); err != nil || number != i {
				fail("pipe %d gave %d: %v", i, number, err)
			}
			reader.Close()
		}(i)
	}
	all.Wait()
	reader, writer, _ := os.Pipe()
	reader.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := reader.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		fail("a read whose time is over: %v", err)
	}
	writer.Close()
	reader.Close()
}

// Goroutines that make no call are interrupted for others.
func compute() {
	var stop atomic.Bool
	var all sync.WaitGroup
	for i := 0; i < 2*runtime.GOMAXPROCS(0); i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for sum := 0; !stop.Load(); sum++ {
			}
		}()
	}
	time.Sleep(30 * time.Millisecond)
	stop.Store(true)
	all.Wait()
}

func main() {
	add()
	ring()
	collect()
	sleep()
	panics()
	pipes()
	compute()
	for try := 0; runtime.NumGoroutine() > 1 && try < 100; try++ {
		time.Sleep(time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n != 1 {
		fail("%d goroutines are left", n)
	}
	if path, err := os.Executable(); err != nil || path == "" {
		fail("the program's path: %q, %v", path, err)
	}
	fmt.Println("goroutines: ok")
}
