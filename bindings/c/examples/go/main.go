// A small backup tool in Go, like ../backup.c.
//
//	backup HOST PORT FILE TREE
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: backup HOST PORT FILE TREE")
		os.Exit(2)
	}
	if err := backup(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		var own *Error
		if errors.As(err, &own) {
			os.Exit(own.ExitCode)
		}
		os.Exit(1)
	}
}

func backup(host, port, file, tree string) error {
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return err
	}
	client, err := Connect(host, uint16(number), time.Minute)
	if err != nil {
		return err
	}
	if err := errors.Join(copies(client, file, tree), objects(client), small(client), commands(client)); err != nil {
		return err
	}
	if err := client.Close(); err != nil {
		return err
	}
	fmt.Println("done by nicstripe", Version())
	return nil
}

func copies(client *Client, file, tree string) error {
	wait := func(what string) func(*Transfer, error) error {
		return func(t *Transfer, err error) error {
			if err != nil {
				return err
			}
			size, err := t.Wait(func(bytes, size uint64) { fmt.Printf("%s: %d of %d bytes\n", what, bytes, size) })
			fmt.Printf("%s: %d bytes\n", what, size)
			return err
		}
	}
	const deep = Replace | Recursive | AsName
	if err := errors.Join(
		wait("put")(client.Put(file, "backup/file", Replace|Parents)),
		wait("get")(client.Get("backup/file", file+".back", Replace)),
		wait("put tree")(client.PutTree(tree, "backup/tree", deep, "*.tmp")),
		wait("get tree")(client.GetTree("backup/tree/", tree+".back", deep)),
	); err != nil {
		return err
	}
	cancelled, err := client.Put(file, "backup/cancelled", Replace)
	if err != nil {
		return err
	}
	cancelled.Cancel()
	_, err = cancelled.Wait(func(uint64, uint64) {})
	var own *Error
	if err == nil || errors.As(err, &own) && own.Code == Cancelled {
		fmt.Println("cancelled: yes")
	}
	return nil
}

func objects(client *Client) error {
	if err := client.MakeDir("backup/packs"); err != nil {
		return err
	}
	writer, err := client.Create("backup/packs/1", Replace)
	if err != nil {
		return err
	}
	for line := 0; line < 1000; line++ {
		if _, err := fmt.Fprintln(writer, "a line of the pack"); err != nil {
			return err
		}
	}
	if err := writer.Finish(); err != nil {
		return err
	}
	reader, err := client.Open("backup/packs/1")
	if err != nil {
		return err
	}
	defer reader.Close()
	last := make([]byte, 19)
	if _, err := reader.ReadAt(last, reader.Size-19); err != nil {
		return err
	}
	fmt.Printf("last of %d bytes: %s", reader.Size, last)

	if err := client.Write("backup/index", []byte("1 2"), Replace); err != nil {
		return err
	}
	part := make([]byte, 1)
	read, err := client.ReadAt("backup/index", 2, part)
	fmt.Printf("read %d byte: %s\n", read, part)
	return err
}

// small writes objects by many goroutines, and removes them.
func small(client *Client) error {
	var all sync.WaitGroup
	results := make(chan error, 16)
	for number := 0; number < cap(results); number++ {
		all.Add(1)
		go func(name string) {
			defer all.Done()
			err := client.Write(name, []byte(name), Replace)
			if size, stat := client.Size(name); stat != nil || size != uint64(len(name)) {
				err = errors.Join(err, stat, fmt.Errorf("%s has %d bytes", name, size))
			}
			results <- errors.Join(err, client.Rename(name, name+".old", Replace), client.Remove(name+".old"))
		}(fmt.Sprintf("backup/small-%d", number))
	}
	all.Wait()
	close(results)
	for err := range results {
		if err != nil {
			return err
		}
	}
	var own *Error
	if _, err := client.Size("backup/small-0"); errors.As(err, &own) && own.Fail == NotFound {
		fmt.Println("removed: yes")
	}
	return nil
}

func commands(client *Client) error {
	shown := func(what string) func(string, bool) {
		return func(name string, isDir bool) {
			if isDir {
				name += "/"
			}
			fmt.Printf("%s: %s\n", what, name)
		}
	}
	if err := errors.Join(client.Walk("backup", false, shown("list")), client.Walk("backup", true, shown("walk"))); err != nil {
		return err
	}
	code, out, errors, err := client.Exec([]byte("input"), "cat", "-")
	if err != nil {
		return err
	}
	fmt.Printf("exec: %d, %q and %q\n", code, out, errors)
	hurried, err := client.Clone(5 * time.Second)
	if err != nil {
		return err
	}
	defer hurried.Free()
	if err := hurried.Interrupt(); err != nil {
		return err
	}
	if own, ok := hurried.MakeDir("backup/none").(*Error); ok {
		fmt.Println("interrupted:", own.Code)
	}
	return nil
}
