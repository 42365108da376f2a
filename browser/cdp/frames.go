package cdp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/cdp/jsonv2"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"

	inpage "glasshouse/browser/page"
)

// errDocGone: the document a call was meant for is no longer there.
var errDocGone = errors.New("the document is gone")

const (
	world     = "glasshouse"
	maxFrames = 60
)

// frame is one frame of a tab as it is now.
type frame struct {
	id, loader, url string
	s               *sess // the session whose process holds it
	parent          *frame
	kids            []*frame
	ord             int // its number in refs; 0 is the main frame
}

// doc is one document with our script in it. nonce is in the script's world too:
// it tells a reused context id from the real one.
type doc struct {
	frame, loader string
	s             *sess
	ctx           runtime.ExecutionContextID
	nonce         string
	ord           int
}

// frames lists a tab's frames, those of other processes included.
func (b *chrome) frames(ctx context.Context, t *tab) (*frame, map[string]*frame, error) {
	b.mu.Lock()
	all := append([]*sess{t.main}, t.kids...)
	b.mu.Unlock()
	byID := map[string]*frame{}
	parents := map[string]string{}
	var order []*frame
	for _, s := range all {
		if len(byID) >= maxFrames {
			break
		}
		sctx, cancel := ctx, context.CancelFunc(func() {})
		if s.kind == "iframe" {
			sctx, cancel = context.WithTimeout(ctx, b.frameTimeout())
		}
		tree, err := cdp.Call(sctx, s, page.GetFrameTree, cdp.Empty{})
		cancel()
		if err != nil {
			if s.kind == "iframe" && ctx.Err() == nil && b.m.failed() == nil {
				continue // it went away meanwhile, or its process hangs
			}
			return nil, nil, err
		}
		var add func(ft *page.FrameTree, parent string)
		add = func(ft *page.FrameTree, parent string) {
			if ft == nil || ft.Frame == nil || len(byID) >= maxFrames {
				return
			}
			f := &frame{id: string(ft.Frame.ID), loader: string(ft.Frame.LoaderID), url: ft.Frame.URL, s: s}
			if _, dup := byID[f.id]; !dup {
				byID[f.id] = f
				order = append(order, f)
				if parent == "" {
					parent = string(ft.Frame.ParentID)
				}
				parents[f.id] = parent
			}
			for _, k := range ft.ChildFrames {
				add(k, f.id)
			}
		}
		add(tree.FrameTree, "")
	}
	var root *frame
	for _, f := range order {
		if f.s == t.main && parents[f.id] == "" {
			root = f
			continue
		}
		if p := byID[parents[f.id]]; p != nil && p != f {
			f.parent = p
			p.kids = append(p.kids, f)
		}
	}
	if root == nil {
		return nil, nil, fmt.Errorf("reading the page's frames: %w", errDetached)
	}
	b.mu.Lock()
	for _, f := range order {
		if f == root {
			continue
		}
		if len(b.ords) > 10_000 {
			clear(b.ords) // refs stay unique: their e-numbers are
		}
		if b.ords[f.id] == 0 {
			b.ords[f.id] = len(b.ords) + 1
		}
		f.ord = b.ords[f.id]
	}
	b.mu.Unlock()
	return root, byID, nil
}

// frameTimeout bounds what a frame in another process may hold up.
func (b *chrome) frameTimeout() time.Duration { return min(2*time.Second, b.opt.CallTimeout) }

// chain lists f and the frames that hold it, innermost first; nil when it is no
// longer under root.
func chain(f, root *frame) []*frame {
	var out []*frame
	for n := 0; f != nil && n < maxFrames; n++ {
		out = append(out, f)
		if f == root {
			return out
		}
		f = f.parent
	}
	return nil
}

// enter puts our script into a frame's document, once.
func (b *chrome) enter(ctx context.Context, f *frame) (*doc, error) {
	b.mu.Lock()
	d := b.docs[f.id]
	b.mu.Unlock()
	if d != nil && d.loader == f.loader && d.s == f.s {
		return d, nil
	}
	res, err := cdp.Call(ctx, f.s, page.CreateIsolatedWorld, page.CreateIsolatedWorldParams{FrameID: cdp.FrameID(f.id), WorldName: world})
	if err != nil {
		return nil, docErr(err)
	}
	b.mu.Lock()
	b.nextDoc++
	want := fmt.Sprintf("d%d", b.nextDoc)
	b.mu.Unlock()
	d = &doc{frame: f.id, loader: f.loader, s: f.s, ctx: res.ExecutionContextID, ord: f.ord}
	v, err := evaluate(ctx, f.s, d.ctx, inpage.Source+"\n;(()=>{const g=globalThis.__glasshouse;g.nonce||=\""+want+"\";return g.nonce})()")
	if err != nil {
		return nil, docErr(err)
	}
	if err := jsonv2.Unmarshal(v, &d.nonce, jsonRead); err != nil || d.nonce == "" || len(d.nonce) > 20 {
		return nil, errors.New("the page's world answered something unexpected")
	}
	b.mu.Lock()
	if len(b.docs) > 500 {
		clear(b.docs)
	}
	b.docs[f.id] = d
	b.mu.Unlock()
	return d, nil
}

// leave forgets a document whose world turned out to be gone.
func (b *chrome) leave(d *doc) {
	b.mu.Lock()
	if b.docs[d.frame] == d {
		delete(b.docs, d.frame)
	}
	b.mu.Unlock()
}

// docErr tells an answer that means "another document now" from other errors.
func docErr(err error) error {
	var w *wireError
	if errors.As(err, &w) || errors.Is(err, errDetached) {
		return fmt.Errorf("%w: %w", errDocGone, err)
	}
	return err
}

func evaluate(ctx context.Context, s *sess, in runtime.ExecutionContextID, expr string) (jsonv2.Value, error) {
	yes := true
	res, err := cdp.Call(ctx, s, runtime.Evaluate, runtime.EvaluateParams{
		Expression: expr, ContextID: in, ReturnByValue: &yes, AwaitPromise: &yes, Silent: &yes,
	})
	if err != nil {
		return nil, err
	}
	if res.ExceptionDetails != nil {
		return nil, scriptError(res.ExceptionDetails)
	}
	if res.Result == nil {
		return nil, nil
	}
	return res.Result.Value, nil
}

func scriptError(x *runtime.ExceptionDetails) error {
	msg := x.Text
	if x.Exception != nil && x.Exception.Description != "" {
		msg = x.Exception.Description
	}
	if strings.HasPrefix(msg, "Error: stale") {
		return errDocGone
	}
	return fmt.Errorf("the page script failed: %s", clean(msg, 200))
}

// run calls a function of our script in a document. Arguments go as JSON.
func (b *chrome) run(ctx context.Context, d *doc, out any, fn string, args ...any) error {
	var list strings.Builder
	for i, a := range args {
		if i > 0 {
			list.WriteByte(',')
		}
		j, err := json.Marshal(a)
		if err != nil {
			return err
		}
		list.Write(j)
	}
	v, err := evaluate(ctx, d.s, d.ctx, fmt.Sprintf(
		`(async()=>{const g=globalThis.__glasshouse;if(!g||g.nonce!==%q)return{gone:true};return{v:await g.%s(%s)}})()`, d.nonce, fn, list.String()))
	return b.result(d, v, err, out)
}

func (b *chrome) result(d *doc, v jsonv2.Value, err error, out any) error {
	if err != nil {
		err = docErr(err)
		if errors.Is(err, errDocGone) {
			b.leave(d)
		}
		return err
	}
	var r struct {
		Gone bool         `json:"gone"`
		V    jsonv2.Value `json:"v"`
	}
	if len(v) == 0 || jsonv2.Unmarshal(v, &r, jsonRead) != nil || r.Gone {
		b.leave(d)
		return errDocGone
	}
	if out == nil || len(r.V) == 0 {
		return nil
	}
	if err := jsonv2.Unmarshal(r.V, out, jsonRead); err != nil {
		return fmt.Errorf("the page's world answered something unexpected: %s", clean(err.Error(), 200))
	}
	return nil
}

// owner is the element that holds a frame, as an object of the holding document;
// it stays valid until its group is released.
func (b *chrome) owner(ctx context.Context, f *frame, holder *doc, group string) (runtime.RemoteObjectID, error) {
	o, err := cdp.Call(ctx, holder.s, dom.GetFrameOwner, dom.GetFrameOwnerParams{FrameID: cdp.FrameID(f.id)})
	if err != nil {
		return "", docErr(err)
	}
	r, err := cdp.Call(ctx, holder.s, dom.ResolveNode, dom.ResolveNodeParams{
		BackendNodeID: o.BackendNodeID, ExecutionContextID: holder.ctx, ObjectGroup: group,
	})
	if err != nil {
		return "", docErr(err)
	}
	if r.Object == nil || r.Object.ObjectID == "" {
		return "", errDocGone
	}
	return r.Object.ObjectID, nil
}

// runOn calls a function of our script with an element as its first argument.
func (b *chrome) runOn(ctx context.Context, d *doc, el runtime.RemoteObjectID, out any, fn string, args ...any) error {
	yes := true
	call := make([]*runtime.CallArgument, 0, len(args))
	for _, a := range args {
		j, err := json.Marshal(a)
		if err != nil {
			return err
		}
		call = append(call, &runtime.CallArgument{Value: j})
	}
	res, err := cdp.Call(ctx, d.s, runtime.CallFunctionOn, runtime.CallFunctionOnParams{
		FunctionDeclaration: fmt.Sprintf(`async function(...a){const g=globalThis.__glasshouse;if(!g||g.nonce!==%q)return{gone:true};return{v:await g.%s(this,...a)}}`, d.nonce, fn),
		ObjectID:            el, Arguments: call, ReturnByValue: &yes, AwaitPromise: &yes, Silent: &yes,
	})
	var v jsonv2.Value
	if err == nil {
		if res.ExceptionDetails != nil {
			err = scriptError(res.ExceptionDetails)
		} else if res.Result != nil {
			v = res.Result.Value
		}
	}
	return b.result(d, v, err, out)
}
