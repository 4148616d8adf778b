package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"sync"
)

func main() {
	dir, err := os.MkdirTemp(".", "go")
	if err != nil {
		fmt.Println("mkdirtemp", err)
		os.Exit(1)
	}
	var wg sync.WaitGroup
	for i := 0; i < 20; i++ {
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			name := filepath.Join(dir, fmt.Sprintf("f%02d", i))
			if err := os.WriteFile(name, make([]byte, 1000*i), 0o644); err != nil {
				fmt.Println("write", err)
			}
		}(i)
	}
	wg.Wait()
	total := int64(0)
	names := []string{}
	filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			total += info.Size()
			names = append(names, info.Name())
		}
		return err
	})
	sort.Strings(names)
	fmt.Println(len(names), names[0], names[19], total)
	f, _ := os.Create(filepath.Join(dir, "lines"))
	w := bufio.NewWriter(f)
	for i := 0; i < 10000; i++ {
		fmt.Fprintln(w, i)
	}
	w.Flush()
	f.Seek(0, 0)
	s := bufio.NewScanner(f)
	n := 0
	for s.Scan() {
		n++
	}
	f.Close()
	fmt.Println(n, os.Rename(filepath.Join(dir, "lines"), filepath.Join(dir, "f99")))
	_, err = os.Stat(filepath.Join(dir, "none"))
	fmt.Println(os.IsNotExist(err))
	fmt.Println(os.RemoveAll(dir))
}
